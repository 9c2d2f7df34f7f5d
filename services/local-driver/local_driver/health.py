"""How volumes and the storage below are: found out by looking, said in both of CSI's ways.

CSI up to 1.12 has one condition with a text; 1.13 has a list of statuses with reasons for
programs. Both tell the same findings. Looking blocks; call it in a thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bitts.csi import v1

from local_driver import filesystems, mounts
from local_driver.backends.backend import Backend, Finding
from local_driver.storage import Storage
from local_driver.volumes import Volume

_Status = v1.VolumeHealthErrorType
_FULL = 0.02
"""Share of the disk below which volumes that were promised their size may meet its end."""

_READ_ONLY = "DiskReadOnly"
"""As the kernel makes it when it has met errors."""


@dataclass(frozen=True, slots=True)
class StorageFinding:
    """Something wrong with the storage as a whole."""

    status: v1.StorageHealthErrorType
    reason: str
    message: str


def of_volume(storage: Storage, volume: Volume, *, on_node: bool = False) -> list[Finding]:
    """Look at a volume; ``on_node`` also at the device that it is used through."""
    return of_volumes(storage, [volume], on_node=on_node)[0]


def of_volumes(
    storage: Storage, volumes: Sequence[Volume], *, on_node: bool = False
) -> list[list[Finding]]:
    """Look at volumes, and at their disks once."""
    disks = {name: _of_disk(storage.backends.get(name)) for name in {v.backend for v in volumes}}
    return [
        [*_of_content(storage.backends.get(one.backend), one, on_node=on_node), *disks[one.backend]]
        for one in volumes
    ]


def _of_content(backend: Backend | None, volume: Volume, *, on_node: bool) -> list[Finding]:
    if backend is None:
        text = f"backend {volume.backend} is switched off: add it to --backends"
        return [Finding(_Status.INACCESSIBLE, "BackendOff", text)]
    try:
        return backend.findings(volume, on_node=on_node)
    except OSError as error:
        return [Finding(_Status.INACCESSIBLE, "ContentUnreadable", str(error))]


def _of_disk(backend: Backend | None) -> list[Finding]:
    try:
        if backend is None or not mounts.is_read_only(backend.folder):
            return []
    except OSError as error:
        return [Finding(_Status.INACCESSIBLE, "FolderUnreadable", str(error))]
    text = f"the disk of {backend.folder} is read-only: see dmesg"
    return [Finding(_Status.DEGRADED, _READ_ONLY, text)]


def abnormal(storage: Storage) -> list[tuple[str, list[Finding]]]:
    """Return every volume that is not well, by ID, with what is wrong."""
    damaged = [
        (volume_id, [Finding(_Status.INACCESSIBLE, "RecordDamaged", text)])
        for volume_id, text in storage.catalog.damaged.items()
    ]
    every = storage.catalog.all()
    looked_at = zip(every, of_volumes(storage, every), strict=True)
    return [*damaged, *((one.volume_id, found) for one, found in looked_at if found)]


def of_storage(storage: Storage) -> list[StorageFinding]:
    """Look at the file systems that hold the volumes."""
    found = []
    for name, backend in storage.backends.items():
        try:
            usage = filesystems.usage(backend.folder)
            is_read_only = mounts.is_read_only(backend.folder)
        except OSError as error:
            text = f"backend {name}: {error}"
            kind = v1.StorageHealthErrorType.STORAGE_UNREACHABLE
            found.append(StorageFinding(kind, "FolderUnreadable", text))
            continue
        degraded = v1.StorageHealthErrorType.STORAGE_DEGRADED
        if is_read_only:
            text = f"backend {name}: the disk is read-only: see dmesg"
            found.append(StorageFinding(degraded, f"{_READ_ONLY}{name.capitalize()}", text))
        if usage.available_bytes < _FULL * usage.total_bytes:
            text = f"backend {name}: {usage.available_bytes} bytes are left on the disk"
            found.append(StorageFinding(degraded, f"DiskFull{name.capitalize()}", text))
    return found


def condition(findings: Sequence[Finding]) -> v1.VolumeCondition:
    """Return findings as CSI up to 1.12 tells them. Pure."""
    text = "; ".join(f"{one.reason}: {one.message}" for one in findings)
    return v1.VolumeCondition(abnormal=bool(findings), message=text or "in order")


def message(volume_id: str, findings: Sequence[Finding]) -> v1.VolumeHealth:
    """Return findings as CSI 1.13 tells them. Pure."""
    return v1.VolumeHealth(
        volume_id=volume_id,
        health_statuses=[
            v1.VolumeHealthVolumeHealthEntry(
                status=one.status, reason=one.reason, message=one.message
            )
            for one in findings
        ],
    )
