"""From a container's spec to the command that the sandbox runs (pure, but for symbolic links)."""

import pathlib
import posixpath
import stat
from collections.abc import Mapping
from typing import Any

from devcluster.node import model, paths
from devcluster.node.containers import Bind, Command, StartError

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build(
    pod: model.Pod, name: str, attempt: int, record: model.Record, layout: paths.Layout
) -> Command:
    """The command of a container; raises StartError naming the field that cannot be served."""
    every = [*(pod.spec.get("initContainers") or ()), *(pod.spec.get("containers") or ())]
    container = next(one for one in every if one["name"] == name)
    if not container.get("command"):
        raise StartError(f'container "{name}": command is required, there are no images here')
    if container.get("envFrom") or container.get("restartPolicy"):
        raise StartError(f'container "{name}": envFrom and restartPolicy are not known here')
    identity = {
        **(pod.spec.get("securityContext") or {}),
        **(container.get("securityContext") or {}),
    }
    user = int(identity.get("runAsUser", 0))
    groups = [int(group) for group in identity.get("supplementalGroups") or ()]
    if (group := identity.get("fsGroup")) is not None:
        groups.append(int(group))
    return Command(
        attempt=attempt,
        argv=[*container["command"], *(container.get("args") or ())],
        env=_environment(pod, container),
        cwd=container.get("workingDir") or "/",
        mounts=[*_mounts(pod, container, record, layout), *_devices(container, record)],
        uid=user,
        gid=int(identity.get("runAsGroup", user)),
        groups=groups,
        log=str(layout.log(pod.uid, name)),
        hostname=(pod.spec.get("hostname") or pod.name)[:63],
        last_words=container.get("terminationMessagePath") or "/dev/termination-log",
    )


def _environment(pod: model.Pod, container: Mapping[str, Any]) -> dict[str, str]:
    found = {"PATH": SEARCH_PATH, "HOME": "/root", "HOSTNAME": pod.name}
    for entry in container.get("env") or ():
        source = entry.get("valueFrom")
        found[entry["name"]] = (
            str(entry.get("value", "")) if source is None else _field(pod, entry["name"], source)
        )
    return found


def _field(pod: model.Pod, name: str, source: Mapping[str, Any]) -> str:
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": str(pod.spec.get("nodeName", "")),
        "status.hostIP": "127.0.0.1",
    }
    path = (source.get("fieldRef") or {}).get("fieldPath")
    if path not in known:
        listed = ", ".join(known)
        raise StartError(f'env "{name}": valueFrom knows fieldRef to {listed} only')
    return known[path]


def _mounts(
    pod: model.Pod, container: Mapping[str, Any], record: model.Record, layout: paths.Layout
) -> list[Bind]:
    volumes = {one["name"]: one for one in pod.spec.get("volumes") or ()}
    binds = []
    for wanted in container.get("volumeMounts") or ():
        name = wanted["name"]
        if name not in volumes:
            raise StartError(f'volumeMounts names "{name}", which is no volume of the pod')
        source = _folder(pod, volumes[name], record, layout)
        if sub := wanted.get("subPath"):
            source = _inside(source, sub)
        written_by_us = not {"secret", "configMap"}.isdisjoint(volumes[name])
        claim = volumes[name].get("persistentVolumeClaim") or {}
        readonly = bool(wanted.get("readOnly") or claim.get("readOnly") or written_by_us)
        binds.append(Bind(str(source), posixpath.join("/", wanted["mountPath"]), readonly))
    return sorted(binds, key=lambda bind: bind.target.count("/"))


def _folder(
    pod: model.Pod, volume: Mapping[str, Any], record: model.Record, layout: paths.Layout
) -> pathlib.Path:
    name = volume["name"]
    for mounted in record.volumes:
        if mounted.name == name:
            return pathlib.Path(mounted.target)
    if "hostPath" in volume:
        return pathlib.Path(volume["hostPath"]["path"])
    plugins = {"emptyDir": "empty-dir", "secret": "secret", "configMap": "configmap"}
    plugin = next(plugins[key] for key in plugins if key in volume)
    return layout.plain_volume(pod.uid, plugin, name)


def _inside(volume: pathlib.Path, sub: str) -> pathlib.Path:
    """A folder of the volume; links that lead out of it are refused.

    One that is missing is made as open as the volume is: a pod's group may write there too.
    """
    path = (volume / sub).resolve()
    if not path.is_relative_to(volume.resolve()):
        raise StartError(f"subPath {sub!r} leads out of its volume")
    if not path.exists():
        mode = stat.S_IMODE(volume.stat().st_mode)
        for folder in reversed([one for one in (path, *path.parents) if not one.exists()]):
            folder.mkdir(mode)
        path.chmod(mode)  # the process's mask took something, and the system call the group's bit
    return path


def _devices(container: Mapping[str, Any], record: model.Record) -> list[Bind]:
    targets = {mounted.name: mounted.target for mounted in record.volumes}
    binds = []
    for wanted in container.get("volumeDevices") or ():
        if wanted["name"] not in targets:
            raise StartError(
                f'volumeDevices names "{wanted["name"]}", which is no claim of the pod'
            )
        binds.append(Bind(targets[wanted["name"]], wanted["devicePath"], readonly=False))
    return binds
