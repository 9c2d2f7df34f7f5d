"""Reading kubeconfig files through kubernetes_asyncio, with errors that say what to do.

Everything here blocks (files, exec plugins): callers run it in a thread.
"""

import asyncio
import base64
import binascii
import dataclasses
import os
import pathlib
from collections.abc import Coroutine, Mapping
from typing import Any

import yaml

from bitts.kube import credentials as credential_sources
from bitts.kube import execplugin, lean
from bitts.kube.errors import ConfigError

lean.import_configuration()

# isort: split
from kubernetes_asyncio.client.configuration import Configuration  # noqa: E402 - made lean above
from kubernetes_asyncio.config import kube_config  # noqa: E402
from kubernetes_asyncio.config.config_exception import ConfigException  # noqa: E402

_PROVIDER_TIMEOUT = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What a kubeconfig's context says; fields as in ``config.Config``."""

    server: str
    origin: str
    credentials: credential_sources.Credentials
    namespace: str
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    verify: bool
    server_name: str | None
    proxy: str | None
    headers: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Section:
    """A context's cluster or user, and the file it stands in."""

    values: dict[str, Any]
    file: str
    where: str


def read(paths: str, source: str) -> Found:
    """Read one file, or several joined by ":", and resolve the current context.

    ``source`` says where the paths come from ("--kubeconfig"). Raises ConfigError.
    """
    merged = _merge(paths, source)
    context, cluster, user = _resolve(merged, paths)
    _check(cluster, user)
    origin = f"{context.file}, {context.where}"
    source_of_tokens = _run_plugin(cluster, user) if "exec" in user.values else None
    settings = Configuration()
    try:
        loader = kube_config.KubeConfigLoader(merged, config_base_path=None)
        _complete(loader.load_and_set(settings), waits="auth-provider" in user.values)
    except (ConfigException, OSError, ValueError, RuntimeError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"{origin}: {user.where}: {reason}") from error
    return Found(
        server=str(settings.host),
        origin=origin,
        credentials=source_of_tokens or _credentials(settings, user),
        namespace=str(context.values.get("namespace") or ""),
        ca_file=settings.ssl_ca_cert,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        verify=bool(settings.verify_ssl),
        server_name=settings.tls_server_name,
        proxy=settings.proxy,
        headers=_impersonation(user.values),
    )


def _merge(paths: str, source: str) -> kube_config.ConfigNode:
    files = [str(pathlib.Path(path).expanduser()) for path in paths.split(os.pathsep) if path]
    if not any(pathlib.Path(file).exists() for file in files):
        raise ConfigError(f"{source}: {paths} does not exist: name an existing kubeconfig file")
    for file in files:
        _check_shape(file)
    merged = kube_config.KubeConfigMerger(os.pathsep.join(files)).config
    if merged is None:
        raise ConfigError(f"{source}: {paths} holds no configuration")
    return merged


def _check_shape(file: str) -> None:
    try:
        content = yaml.safe_load(pathlib.Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return  # one of several: kubectl ignores it, too
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: not readable as a kubeconfig: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: not a kubeconfig: the file holds no mapping")
    for field in ("clusters", "contexts", "users"):
        entries = content.get(field) or []
        named = isinstance(entries, list) and all(
            isinstance(one, dict) and one.get("name") for one in entries
        )
        if not named:
            raise ConfigError(f"{file}: {field}: must be a list of entries with a name")


def _resolve(merged: kube_config.ConfigNode, paths: str) -> tuple[_Section, _Section, _Section]:
    name = merged.value.get("current-context")
    known = [str(one.value["name"]) for one in merged.value["contexts"]]
    if not name:
        choice = f"one of {', '.join(known)}" if known else "a context (there are none)"
        raise ConfigError(f"{paths}: current-context: not set: set it to {choice}")
    context = _section(merged, "contexts", "context", name, f"{paths}: current-context")
    origin = f"{context.file}: context {name!r}"
    cluster_name = context.values.get("cluster")
    if not cluster_name:
        raise ConfigError(f"{origin}: cluster: not set: name one of the clusters")
    cluster = _section(merged, "clusters", "cluster", cluster_name, f"{origin}: cluster")
    if not (user_name := context.values.get("user")):
        return context, cluster, _Section({}, context.file, "no user")
    return context, cluster, _section(merged, "users", "user", user_name, f"{origin}: user")


def _section(
    merged: kube_config.ConfigNode, plural: str, field: str, name: str, where: str
) -> _Section:
    for entry in merged.value[plural]:
        if entry.value["name"] == name:
            values = entry.value.get(field) or {}
            if not isinstance(values, dict):
                raise ConfigError(f"{entry.path}: {plural}: {name!r}: {field}: must be a mapping")
            return _Section(values, str(entry.path), f"{field} {name!r}")
    known = ", ".join(repr(one.value["name"]) for one in merged.value[plural]) or "none"
    raise ConfigError(f"{where}: {name!r} is not among {plural} (there are: {known})")


def _check(cluster: _Section, user: _Section) -> None:
    """Raise ConfigError for what would otherwise fail later with less to say."""
    server = cluster.values.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ConfigError(
            f"{cluster.file}: {cluster.where}: server: {server!r} is no URL: "
            "write https://HOST:PORT"
        )
    _check_file(cluster, "certificate-authority")
    _check_data(cluster, "certificate-authority-data")
    for name in ("client-certificate", "client-key", "tokenFile"):
        _check_file(user, name)
    for name in ("client-certificate-data", "client-key-data"):
        _check_data(user, name)


def _check_file(section: _Section, name: str) -> None:
    value = section.values.get(name)
    if value and not section.values.get(f"{name}-data"):
        path = pathlib.Path(section.file).parent / str(value)
        if not path.is_file():
            raise ConfigError(f"{section.file}: {section.where}: {name}: {path} does not exist")


def _check_data(section: _Section, name: str) -> None:
    value = section.values.get(name)
    if not value:
        return
    try:
        base64.b64decode(str(value), validate=True)
    except binascii.Error as error:
        raise ConfigError(
            f"{section.file}: {section.where}: {name}: is not base64 ({error})"
        ) from error


def _complete(loading: Coroutine[Any, Any, None], *, waits: bool) -> None:
    """Run kubernetes_asyncio's loading, which waits for nothing but an auth provider."""
    if waits:
        asyncio.run(asyncio.wait_for(loading, _PROVIDER_TIMEOUT))
        return
    try:
        loading.send(None)
    except StopIteration:
        return
    loading.close()
    raise RuntimeError("the kubeconfig asks for something that needs an event loop")


def _run_plugin(cluster: _Section, user: _Section) -> credential_sources.ExecPlugin:
    """Run the user's plugin, and put what it gives into the user's section."""
    plugin = execplugin.Plugin(
        spec=user.values["exec"] or {},
        cluster=cluster.values,
        folder=pathlib.Path(user.file).parent,
        where=f"{user.file}: {user.where}",
    )
    first = plugin.run()
    del user.values["exec"]
    if first.certificate:
        for name, text in (("certificate", first.certificate), ("key", first.key)):
            user.values[f"client-{name}-data"] = base64.b64encode(text.encode()).decode()
    return credential_sources.ExecPlugin(plugin.run, first)


def _credentials(settings: Configuration, user: _Section) -> credential_sources.Credentials:
    value: str | None = settings.api_key.get("BearerToken")
    file = user.values.get("tokenFile")
    if file and not user.values.get("token"):
        return credential_sources.TokenFile(pathlib.Path(user.file).parent / str(file))
    return credential_sources.Fixed(value.strip() if value else None)


def _impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Headers for ``as``, ``as-uid``, ``as-groups`` (ignored by kubernetes_asyncio)."""
    found = []
    if user.get("as"):
        found.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        found.append(("Impersonate-Uid", str(user["as-uid"])))
    found += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    return tuple(found)
