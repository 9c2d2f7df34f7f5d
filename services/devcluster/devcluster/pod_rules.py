"""The rules of Pods, as far as containers and volumes go (pure)."""

import collections.abc

from devcluster import errors, metadata, volume_rules
from devcluster.errors import Cause
from devcluster.resources import Object
from devcluster.tables import at

Causes = collections.abc.Iterator[Cause]


def containers(obj: Object) -> Causes:
    """Named each in its own way, with an image, and with mounts of volumes that there are."""
    found = at("spec.containers", ())(obj)
    if not found:
        yield errors.required("spec.containers")
    volumes = {volume.get("name") for volume in at("spec.volumes", ())(obj)}
    seen: set[object] = set()
    for index, container in enumerate(found):
        path, name = f"spec.containers[{index}]", container.get("name")
        if not name:
            yield errors.required(f"{path}.name")
        elif name in seen:
            yield errors.duplicate(f"{path}.name", name)
        elif not metadata.is_label(name):
            yield errors.invalid_value(f"{path}.name", name, metadata.LABEL_RULE)
        seen.add(name)
        if not container.get("image"):
            yield errors.required(f"{path}.image")
        for kind, place in (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")):
            yield from _uses(f"{path}.{kind}", place, container.get(kind) or (), volumes)
        yield from _used_twice(path, container)


def _uses(
    path: str, place: str, uses: collections.abc.Sequence[Object], volumes: set[object]
) -> Causes:
    taken: set[object] = set()
    for index, use in enumerate(uses):
        name, where = use.get("name"), use.get(place)
        if name not in volumes:
            yield Cause(f"{path}[{index}].name", "FieldValueNotFound", f'Not found: "{name}"')
        if not where:
            yield errors.required(f"{path}[{index}].{place}")
        elif where in taken:
            yield errors.invalid_value(f"{path}[{index}].{place}", where, "must be unique")
        taken.add(where)
        if ".." in str(use.get("subPath") or "").split("/"):
            why = "must not contain '..'"
            yield errors.invalid_value(f"{path}.subPath", use["subPath"], why)


def _used_twice(path: str, container: Object) -> Causes:
    """A volume is a mount or a device of a container, not both."""
    mounts = {use.get("name") for use in container.get("volumeMounts") or ()}
    devices = {use.get("name") for use in container.get("volumeDevices") or ()}
    for kind, other, known in (
        ("volumeMounts", "volumeDevices", devices),
        ("volumeDevices", "volumeMounts", mounts),
    ):
        for index, use in enumerate(container.get(kind) or ()):
            if use.get("name") in known:
                field, why = f"{path}.{kind}[{index}].name", f"must not already exist in {other}"
                yield errors.invalid_value(field, use["name"], why)


def volumes(obj: Object) -> Causes:
    """Named each in its own way, and each of one kind."""
    seen: set[object] = set()
    for index, volume in enumerate(at("spec.volumes", ())(obj)):
        path, name = f"spec.volumes[{index}]", volume.get("name")
        if not name:
            yield errors.required(f"{path}.name")
        elif not metadata.is_label(name):
            yield errors.invalid_value(f"{path}.name", name, metadata.LABEL_RULE)
        elif name in seen:
            yield errors.duplicate(f"{path}.name", name)
        seen.add(name)
        kinds = sorted(key for key in volume if key != "name" and volume[key] is not None)
        for kind in kinds[1:]:
            why = "may not specify more than 1 volume type"
            yield errors.forbidden_value(f"{path}.{kind}", why)
        yield from _volume(path, volume)


def _volume(path: str, volume: Object) -> Causes:
    claim = volume.get("persistentVolumeClaim")
    if claim is not None and not claim.get("claimName"):
        yield errors.required(f"{path}.persistentVolumeClaim.claimName")
    ephemeral = volume.get("ephemeral")
    if ephemeral is None:
        return
    path = f"{path}.ephemeral.volumeClaimTemplate"
    template = ephemeral.get("volumeClaimTemplate")
    if not template:
        yield errors.required(path)
        return
    for cause in volume_rules.claim(template):
        yield Cause(f"{path}.{cause.field}", cause.reason, cause.text)


def changes(old: Object, new: Object) -> Causes:
    """Hardly anything of a pod's spec changes."""
    before, after = _fixed_part(old["spec"]), _fixed_part(new["spec"])
    if not before.get("nodeName"):
        before["nodeName"] = after.get("nodeName")
    if volume_rules.present(before) != volume_rules.present(after):
        why = "pod updates may not change fields other than `spec.containers[*].image`,"
        why += (
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only"
        )
        why += (
            " additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to"
        )
        why += " be set to 1 if it was previously negative)"
        yield errors.forbidden_value("spec", why)


def _fixed_part(spec: Object) -> Object:
    free = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    kept = {name: value for name, value in spec.items() if name not in free}
    for name in ("containers", "initContainers"):
        if name in kept:
            kept[name] = [{k: v for k, v in one.items() if k != "image"} for one in kept[name]]
    return kept
