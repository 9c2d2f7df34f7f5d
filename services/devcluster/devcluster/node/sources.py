"""From a pod's ``volumes`` to what has to be mounted: claims are followed, references read.

Everything is read live, as the kubelet does: a pod is set up once, and Secrets must not be kept.
"""

import base64
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bitts.kube import client as clients
from bitts.kube import errors, kinds, objects

from devcluster.node import model, names
from devcluster.node.model import VolumeError

CONFIG_MAPS = kinds.Kind("", "v1", "configmaps", "ConfigMap", True, dict)


@dataclass(frozen=True, slots=True)
class Csi:
    """A volume that a CSI driver mounts."""

    name: str
    volume: objects.PersistentVolume
    source: objects.CSIPersistentVolumeSource
    driver: objects.CSIDriver | None
    readonly: bool

    @property
    def is_block(self) -> bool:
        """Whether the pod gets a device instead of a folder."""
        return self.volume.spec.volume_mode == "Block"

    @property
    def needs_attach(self) -> bool:
        """Whether an attacher has to act before the node can."""
        return self.driver is None or self.driver.spec.attach_required is not False


@dataclass(frozen=True, slots=True)
class Folder:
    """A volume that the agent makes: a folder with these files, in memory or on disk."""

    name: str
    plugin: str
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    mode: int = 0o644
    in_memory: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """A file or folder of the host."""

    name: str
    path: pathlib.Path


Source = Csi | Folder | Host


async def resolve(client: clients.Client, pod: model.Pod) -> list[Source]:
    """Follow every volume that a container of the pod uses; raises VolumeError."""
    found: list[Source] = []
    wanted = used(pod.spec)
    for volume in pod.spec.get("volumes") or ():
        if volume["name"] not in wanted:
            continue  # the kubelet leaves it alone too
        try:
            found.append(await _resolve_one(client, pod, volume))
        except errors.NotFound as error:
            raise VolumeError(f'volume "{volume["name"]}": {error.message}') from error
        except errors.ApiError as error:
            raise VolumeError(f'volume "{volume["name"]}": {error}') from error
    return found


def used(spec: Mapping[str, Any]) -> set[str]:
    """The names of the volumes that some container mounts, or has as a device."""
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return {
        str(one["name"])
        for container in every
        for how in ("volumeMounts", "volumeDevices")
        for one in container.get(how) or ()
    }


async def _resolve_one(client: clients.Client, pod: model.Pod, volume: Mapping[str, Any]) -> Source:
    name = str(volume["name"])
    match volume:
        case {"persistentVolumeClaim": source}:
            readonly = bool(source.get("readOnly"))
            return await _claim(client, pod, name, source["claimName"], readonly=readonly)
        case {"ephemeral": _}:
            return await _claim(client, pod, name, f"{pod.name}-{name}", owned=True)
        case {"emptyDir": source}:
            return Folder(name, "empty-dir", in_memory=(source or {}).get("medium") == "Memory")
        case {"secret": source}:
            secret = await _optional(client, kinds.SECRETS, source["secretName"], pod, source)
            data = dict(secret.data) if secret else {}
            return Folder(name, "secret", _files(name, data, source), _mode(source))
        case {"configMap": source}:
            found = await _optional(client, CONFIG_MAPS, source["name"], pod, source) or {}
            data = {key: text.encode() for key, text in (found.get("data") or {}).items()}
            for key, text in (found.get("binaryData") or {}).items():
                data[key] = base64.b64decode(text)
            return Folder(name, "configmap", _files(name, data, source), _mode(source))
        case {"hostPath": source}:
            return Host(name, pathlib.Path(source["path"]))
    kind = next((key for key in volume if key != "name"), "none")
    raise VolumeError(
        f'volume "{name}" has type {kind}: this node agent knows persistentVolumeClaim, '
        "ephemeral, emptyDir, secret, configMap and hostPath"
    )


async def _claim(
    client: clients.Client,
    pod: model.Pod,
    name: str,
    claim_name: str,
    *,
    readonly: bool = False,
    owned: bool = False,
) -> Csi:
    claim = await client.get(kinds.PERSISTENT_VOLUME_CLAIMS, claim_name, pod.namespace)
    if owned and not any(ref.uid == pod.uid for ref in claim.metadata.owner_references):
        raise VolumeError(f'claim "{claim.key}" of volume "{name}" does not belong to the pod')
    if names.BIND_COMPLETED not in claim.metadata.annotations:
        raise VolumeError(f'claim "{claim.key}" of volume "{name}" is not bound yet', wait=1.0)
    volume = await client.get(kinds.PERSISTENT_VOLUMES, claim.spec.volume_name)
    source, ref = volume.spec.csi, volume.spec.claim_ref
    if ref is None or ref.uid != claim.uid:
        raise VolumeError(f'volume "{volume.name}" is not bound to claim "{claim.key}"')
    if source is None:
        raise VolumeError(f'volume "{volume.name}" is no CSI volume: this agent mounts no other')
    try:
        driver = await client.get(kinds.CSI_DRIVERS, source.driver)
    except errors.NotFound:
        driver = None
    return Csi(name, volume, source, driver, readonly)


async def _optional(
    client: clients.Client, kind: kinds.Kind[Any], name: str, pod: model.Pod, source: Any
) -> Any:
    try:
        return await client.get(kind, name, pod.namespace)
    except errors.NotFound:
        if source.get("optional"):
            return None
        raise


def _mode(source: Mapping[str, Any]) -> int:
    return int(source.get("defaultMode", 0o644))


def _files(name: str, data: Mapping[str, bytes], source: Mapping[str, Any]) -> dict[str, bytes]:
    """Every key as a file, or the chosen ones under their paths."""
    if (items := source.get("items")) is None:
        return dict(data)
    found = {}
    for item in items:
        parts = pathlib.PurePosixPath(item["path"])
        if parts.is_absolute() or ".." in parts.parts:
            raise VolumeError(f'volume "{name}": items path {item["path"]!r} must stay inside')
        if item["key"] in data:
            found[str(parts)] = data[item["key"]]
        elif not source.get("optional"):
            raise VolumeError(f'volume "{name}": there is no key {item["key"]!r}')
    return found


async def secret_of(
    client: clients.Client, ref: objects.SecretReference | None, what: str
) -> dict[str, str]:
    """The data of a driver's secret; raises VolumeError naming the reference."""
    if ref is None:
        return {}
    try:
        secret = await client.get(kinds.SECRETS, ref.name, ref.namespace)
    except errors.ApiError as error:
        raise VolumeError(f'{what} "{ref.namespace}/{ref.name}": {error.message}') from error
    return {key: value.decode() for key, value in secret.data.items()}
