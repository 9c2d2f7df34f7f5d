"""Whether the fields of an object have the types of its kind, as decoding into Go types tells.

One value of a wrong type that were let in would break every reader of its resource, the
server's own tables included; hence nothing else looks at an object before this did. As in
Kubernetes, null is the same as absent, a quantity gets its canonical form, and a field that the
kind does not have is dropped, and named to whoever wants to know. Tables: ``protobuf_fields``,
and ``shape_fields`` for kinds that only come as JSON.
"""

import re
from dataclasses import dataclass, field, replace

from bitts.kube import quantity

from devcluster import errors, protobuf, shape_fields
from devcluster.resources import Object, Resource

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d([.]\d+)?([Zz]|[+-]\d\d:\d\d)")
_PLUGINS = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume"),
    *("flocker", "gcePersistentDisk", "glusterfs", "iscsi", "photonPersistentDisk"),
    *("portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"),
)
"""Sources of volumes that nobody here looks into."""
_LARGEST = 2**63 - 1
_GO_TYPES = {"": "string", "bytes": "[]uint8", "int": "int64", "IntOrString": "intstr.IntOrString"}
_ZERO: dict[str, object] = {"": "", "bytes": "", "int": 0, "bool": False, "Quantity": "0"}


@dataclass(frozen=True, slots=True)
class Member:
    """What a field holds: ``type`` is a scalar's or a message's name, "" is a string."""

    type: str
    repeated: bool = False
    mapped: bool = False

    @property
    def go_type(self) -> str:
        """Return the type as Go's decoder names it in errors."""
        base = _GO_TYPES.get(self.type, self.type)
        return f"[]{base}" if self.repeated else f"map[string]{base}" if self.mapped else base


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a struct; an open one has others that nobody here looks at."""

    name: str
    members: dict[str, Member]
    is_open: bool


class _MismatchError(Exception):
    """A value that its field cannot hold."""


def _from_protobuf() -> dict[str, Message]:
    found = {}
    for name, table in protobuf.TABLES.items():
        listed = [one for one in table.values() if one.name != "-"]
        for spread in [one for one in listed if one.name == "*"]:
            listed.remove(spread)
            listed += protobuf.TABLES[spread.type].values()
        members = {one.name: Member(one.type, one.repeated, one.mapped) for one in listed}
        found[name] = Message(name, members, is_open=False)
    hidden = {"managedFields": Member("any", repeated=True), "selfLink": Member("")}
    found["ObjectMeta"].members.update(hidden)
    found["CSINode"].members["status"] = Member("any")
    plugins = {name: Member("any") for name in _PLUGINS}
    found["PersistentVolumeSpec"].members.update(plugins)
    return found


def _from_text(text: str) -> dict[str, Message]:
    found = {}
    for entry in text.strip().replace("\n    ", " ").splitlines():
        name, _, listed = entry.partition(" ~= ")
        members = {}
        for one in listed.split():
            label, _, kind = one.partition(":")
            bare = kind.removeprefix("[]").removeprefix("{}")
            members[label] = Member(bare, kind.startswith("[]"), kind.startswith("{}"))
        found[name] = Message(name, members, is_open=True)
    return found


_MESSAGES = _from_protobuf() | _from_text(shape_fields.TABLES)
_TYPE = {"kind": Member(""), "apiVersion": Member("")}
_ROOTS = {
    name: replace(message, members=message.members | _TYPE) for name, message in _MESSAGES.items()
}


def conform(resource: Resource, obj: Object) -> list[str]:
    """Bring ``obj``, which is changed, into the shape of its kind; return what was unknown.

    Of a custom resource only the metadata is looked at. Raises ApiError 400 naming the field.
    """
    root = _ROOTS["Namespaced"] if resource.custom else _ROOTS.get(resource.kind)
    walk = _Walk()
    try:
        walk.message(obj, root or _ROOTS["Namespaced"], ())
    except _MismatchError as error:
        kind = f'{resource.kind} in version "{resource.version}"'
        text = f"{kind} cannot be handled as a {resource.kind}: {error}"
        raise errors.bad_request(text) from error
    return walk.unknown


def refuse_unknown(resource: Resource, unknown: list[str]) -> None:
    """Raise ApiError 400 if there are unknown fields, as ``fieldValidation=Strict`` wants it."""
    if unknown:
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        kind = f'{resource.kind} in version "{resource.version}"'
        text = f"{kind} cannot be handled as a {resource.kind}: strict decoding error: {listed}"
        raise errors.bad_request(text)


Path = tuple[str, ...]


@dataclass(slots=True)
class _Walk:
    """One pass over an object, which is changed in place."""

    unknown: list[str] = field(default_factory=list)

    def message(self, value: Object, message: Message, path: Path) -> None:
        for name in list(value):
            member, item = message.members.get(name), value[name]
            if member is None:
                if not message.is_open:
                    del value[name]
                    self.unknown.append(".".join((*path, name)))
            elif item is None:
                del value[name]
            else:
                value[name] = self._member(item, member, message, (*path, name))

    def _member(self, item: object, member: Member, owner: Message, path: Path) -> object:
        if member.repeated:
            if not isinstance(item, list):
                raise _mismatch(item, member, owner, path)
            places = enumerate(item)
            return [self._single(one, member, owner, _at(path, place)) for place, one in places]
        if member.mapped:
            if not isinstance(item, dict):
                raise _mismatch(item, member, owner, path)
            pairs = item.items()
            return {key: self._single(one, member, owner, _at(path, key)) for key, one in pairs}
        return self._single(item, member, owner, path)

    def _single(self, item: object, member: Member, owner: Message, path: Path) -> object:
        message = _MESSAGES.get(member.type)
        if item is None:
            return {} if message else _ZERO.get(member.type)
        if message is None:
            if not _fits(item, member.type):
                raise _mismatch(item, replace(member, repeated=False, mapped=False), owner, path)
            return _read(item, member.type, path)
        if not isinstance(item, dict):
            raise _mismatch(item, replace(member, repeated=False, mapped=False), owner, path)
        self.message(item, message, path)
        return item


def _at(path: Path, place: object) -> Path:
    """Return the path of an entry of a list or map. Go leaves it out; it saves a search."""
    return (*path[:-1], f"{path[-1]}[{place}]")


def _fits(item: object, kind: str) -> bool:
    match kind:
        case "any":
            return True
        case "bool":
            return isinstance(item, bool)
        case "int":
            return isinstance(item, int) and not isinstance(item, bool) and abs(item) <= _LARGEST
        case "IntOrString":
            return isinstance(item, int | str) and not isinstance(item, bool)
        case "Quantity":
            return isinstance(item, int | float | str) and not isinstance(item, bool)
        case _:
            return isinstance(item, str)


def _read(item: object, kind: str, path: Path) -> object:
    """Return a scalar as it is stored: quantities in their canonical form."""
    where = ".".join(path)
    if kind == "Quantity":
        try:
            return str(quantity.parse(str(item)))
        except quantity.QuantityError as error:
            raise _MismatchError(f"{where}: must be a quantity such as 1Gi") from error
    if kind in ("Time", "MicroTime") and not _TIME.fullmatch(str(item)):
        text = f'parsing time "{item}" as "2006-01-02T15:04:05Z07:00": cannot parse it'
        raise _MismatchError(f"{where}: {text}")
    return item


def _mismatch(item: object, member: Member, owner: Message, path: Path) -> _MismatchError:
    where = f"{owner.name}.{'.'.join(path)}"
    what = f"json: cannot unmarshal {_json_type(item)} into Go struct field {where}"
    return _MismatchError(f"{what} of type {member.go_type}")


def _json_type(item: object) -> str:
    match item:
        case bool():
            return "bool"
        case int() | float():
            return f"number {item}" if isinstance(item, float) else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
