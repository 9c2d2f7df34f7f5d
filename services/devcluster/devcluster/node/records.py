"""The agent's memory on disk: one small file per pod, replaced atomically.

A record is written before the first effect that it describes, so an agent that was killed at
any instruction finds on its next start everything it may have to undo.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil

import msgspec

from devcluster.node import model, mountinfo, paths

NAME = "pod.json"


class Records:
    """All pods' records, in memory as they are on disk."""

    def __init__(self, layout: paths.Layout) -> None:
        self._layout = layout
        self._records: dict[str, model.Record] = {}

    def get(self, uid: str) -> model.Record | None:
        """A pod's record."""
        return self._records.get(uid)

    def all(self) -> list[model.Record]:
        """Every record."""
        return list(self._records.values())

    def is_staged_for_others(self, uid: str, staging: str) -> bool:
        """Whether another pod has, or is about to get, a volume staged at this path."""
        return any(
            volume.staging == staging and volume.staged
            for record in self._records.values()
            if record.uid != uid
            for volume in record.volumes
        )

    async def load(self) -> None:
        """Read what an earlier agent left; folders without a record never had an effect.

        After a reboot nothing is mounted any more: volumes are then set up once more.
        """
        found = await asyncio.to_thread(_read_all, self._layout.pods)
        mounted = set(await asyncio.to_thread(mountinfo.current))
        for uid, data in found.items():
            record = msgspec.json.decode(data, type=model.Record)
            ready = record.ready and all(one.target in mounted for one in record.volumes)
            self._records[uid] = msgspec.structs.replace(record, ready=ready)

    async def write(self, record: model.Record) -> None:
        """Make a record durable."""
        folder = self._layout.pod(record.uid)
        await asyncio.to_thread(_write, folder, msgspec.json.encode(record))
        self._records[record.uid] = record

    async def release(self, uid: str, volume: model.Mounted) -> None:
        """Note that a pod has a volume no more, and so is not ready to run."""
        record = self._records.get(uid)
        if record is not None:
            left = tuple(one for one in record.volumes if one != volume)
            await self.write(msgspec.structs.replace(record, volumes=left, ready=False))

    async def remove(self, uid: str) -> None:
        """Remove a pod's folder; raises OSError while something is mounted below it."""
        await asyncio.to_thread(_remove, self._layout.pod(uid))
        self._records.pop(uid, None)


def _read_all(pods: pathlib.Path) -> dict[str, bytes]:
    found = {}
    for folder in pods.iterdir():
        try:
            found[folder.name] = (folder / NAME).read_bytes()
        except FileNotFoundError:
            shutil.rmtree(folder)
    return found


def _write(folder: pathlib.Path, data: bytes) -> None:
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    new = folder / f".{NAME}"
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.rename(folder / NAME)


def _remove(folder: pathlib.Path) -> None:
    """The record goes last: a removal that is cut off is taken up again."""
    mounted = mountinfo.below(folder)
    if mounted:
        raise OSError(f"{mounted[0]} is still mounted; unmount it, the pod's folder goes then")
    with contextlib.suppress(FileNotFoundError):
        for entry in folder.iterdir():
            if entry.name == NAME:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (folder / NAME).unlink(missing_ok=True)
        folder.rmdir()
