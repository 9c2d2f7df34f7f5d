"""Network configurations: the list on disk, and what one plugin is handed on stdin.

``read_request`` is a plugin's view (the order of refusals is that of Go's skeleton);
``read_list`` and ``derive`` are a runtime's view, needed where the daemon itself runs plugins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from bitts.cni import documents, results, validation, versions
from bitts.cni.documents import DocumentError, Fields
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result

_NOTHING: Mapping[str, object] = MappingProxyType({})
_GATES = {
    Command.CHECK: versions.CHECK_SINCE,
    Command.GC: versions.GC_SINCE,
    Command.STATUS: versions.STATUS_SINCE,
}


class PluginConfig:
    """The configuration of one plugin as it arrived, with the keys that every plugin has.

    Compared by identity, so that what is derived from it can be remembered with it.
    """

    __slots__ = ("_previous", "_unread", "document", "fields", "name", "type", "version")

    def __init__(
        self,
        document: Mapping[str, object],
        version: str,
        name: str,
        type: str,
        previous: Result | None = None,
        unread: str | None = None,
    ) -> None:
        self.document = document
        self.version = version
        self.name = name
        self.type = type
        self.fields = Fields(document)
        self._previous = previous
        self._unread = unread
        """The version of a previous result that nobody has looked at."""

    @property
    def previous(self) -> Result | None:
        """The result of the plugin before. Raises CniError where it is none, if it was not read."""
        if self._unread is not None:
            self._previous = _previous(self.fields, self._unread)
            self._unread = None
        return self._previous

    def is_previous(self, document: Mapping[str, object]) -> bool:
        """Say whether the previous result is this document, to the letter."""
        return self.fields.raw("prevResult") == document

    def after(self, previous: Result) -> "PluginConfig":
        """Return the configuration with the result of an earlier plugin."""
        return PluginConfig(self.document, self.version, self.name, self.type, previous)

    @property
    def ipam_type(self) -> str:
        """The IPAM plugin's type, empty for none."""
        return self.fields.nested("ipam").text("type")


def read_request(
    text: bytes, command: Command, supported: Sequence[str], *, leaves_previous: bool = False
) -> PluginConfig:
    """Return the configuration on stdin. Raises CniError as Go's skeleton does.

    The previous result may be left for whoever asks for it.
    """
    try:
        document = documents.as_object(documents.parse(text), "network config")
        fields = Fields(document)
        name, version = fields.text("name"), fields.text("cniVersion")
        plugin = fields.text("type")
    except DocumentError as error:
        raise CniError(Code.DECODING_FAILURE, f"error unmarshall network config: {error}") from None
    if not name:
        raise CniError(Code.INVALID_CONFIG, "missing network name")
    validation.network_name(name)
    _check_version(version or "0.1.0", command, supported)
    found = PluginConfig(document, version or "0.1.0", name, plugin, unread=version)
    if not leaves_previous:
        _ = found.previous
    return found


def _check_version(version: str, command: Command, supported: Sequence[str]) -> None:
    gate = _GATES.get(command)
    if gate is not None:
        try:
            allowed = versions.at_least(version, gate)
            served = any(versions.at_least(each, version) for each in supported)
        except ValueError as error:
            raise CniError(Code.DECODING_FAILURE, str(error)) from None
        if not allowed:
            raise CniError(Code.INCOMPATIBLE_VERSION, f"config version does not allow {command}")
        if not served:
            raise CniError(Code.INCOMPATIBLE_VERSION, f"plugin version does not allow {command}")
    if version not in supported:
        known = " ".join(f'"{each}"' for each in supported)
        raise CniError(
            Code.INCOMPATIBLE_VERSION,
            "incompatible CNI versions",
            f'config is "{version}", plugin supports [{known}]',
        )


def _previous(fields: Fields, version: str) -> Result | None:
    if fields.raw("prevResult") is None:
        return None
    try:
        return results.decode(fields.raw("prevResult"), version)
    except DocumentError as error:
        raise CniError(Code.INTERNAL, f"could not parse prevResult: {error}") from None


@dataclass(frozen=True, slots=True)
class NetworkList:
    """A network's plugins in order, as a runtime reads them from a file."""

    name: str
    version: str
    plugins: tuple[Mapping[str, object], ...]
    skips_check: bool = False
    skips_gc: bool = False
    inlined_only: bool = False
    document: Mapping[str, object] = field(default_factory=dict)


def read_list(text: bytes) -> NetworkList:
    """Read a ``.conflist``. Raises DocumentError naming the field.

    Plugins of the network's own folder are the caller's to add, unless ``inlined_only``.
    """
    document = documents.as_object(documents.parse(text), "configuration list")
    fields = Fields(document)
    name = fields.text("name")
    if not name:
        raise DocumentError("error parsing configuration list: no name")
    try:
        version = versions.chosen(fields.text("cniVersion"), fields.texts("cniVersions"))
    except ValueError as error:
        raise DocumentError(f"error parsing configuration list: {error}") from None
    inlined_only = _flag(fields, "loadOnlyInlinedPlugins")
    given = "plugins" in fields
    if given and not fields.items("plugins"):
        raise DocumentError("error parsing configuration list: no plugins in list")
    if inlined_only and not given:
        raise DocumentError(
            "error parsing configuration list: `loadOnlyInlinedPlugins` is true, "
            "and no 'plugins' key"
        )
    return NetworkList(
        name=name,
        version=version,
        plugins=tuple(_plugin(each, index) for index, each in enumerate(fields.items("plugins"))),
        skips_check=_flag(fields, "disableCheck"),
        skips_gc=_flag(fields, "disableGC"),
        inlined_only=inlined_only,
        document=document,
    )


def upconvert(text: bytes) -> NetworkList:
    """Read a single-plugin configuration (``.conf``) as a list of one. Raises DocumentError."""
    document = documents.as_object(documents.parse(text), "configuration")
    fields = Fields(document)
    plugin = _plugin(document, 0)
    return NetworkList(fields.text("name"), fields.text("cniVersion"), (plugin,))


def _plugin(value: object, index: int) -> Mapping[str, object]:
    document = documents.as_object(value, f"plugins[{index}]")
    if not Fields(document).text("type"):
        raise DocumentError(f"failed to parse plugin config {index}: missing 'type'")
    return document


def _flag(fields: Fields, name: str) -> bool:
    """Read a switch that libcni also takes as the words true and false."""
    value = fields.raw(name)
    if isinstance(value, str):
        if value.lower() not in {"true", "false"}:
            raise DocumentError(f"error parsing configuration list: invalid {name} value {value}")
        return value.lower() == "true"
    return fields.boolean(name)


def derive(
    network: NetworkList,
    plugin: Mapping[str, object],
    *,
    previous: Result | None = None,
    runtime: Mapping[str, object] = _NOTHING,
) -> dict[str, object]:
    """Return the request configuration of one plugin of a list (specification, section 3).

    ``runtime`` holds what is offered per capability; only declared ones are passed on.
    """
    derived = dict(plugin) | {"name": network.name, "cniVersion": network.version}
    declared = Fields(plugin).mapping("capabilities")
    passed = {key: value for key, value in runtime.items() if declared.get(key) is True}
    if passed:
        derived["runtimeConfig"] = passed
    if previous is not None:
        derived["prevResult"] = results.encode(previous)
    return derived
