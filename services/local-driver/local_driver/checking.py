"""``--check`` and ``--repair``: what is stored, attached and mounted, and whose it is.

What a record vouches for is never touched, only looked at. Everything else in the state
directory that has the name of a volume or snapshot is rubbish, wherever it is shown.
"""

import pathlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bitts.rpc.codes import RpcError

from local_driver import health, loops, mounts, opening, steps
from local_driver.backends.backend import Backend
from local_driver.options import Options
from local_driver.storage import Storage

CLEAN, FINDINGS = 0, 2
"""Exit codes: nothing is wrong (any more), or something is left that a person must look at."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong; ``repair`` clears it away, None where only a person can decide."""

    text: str
    repair: Callable[[], None] | None = None


def run(options: Options) -> int:
    """Look, tell on standard output, repair if wanted; returns the exit code. Blocks."""
    opened = opening.opened(options, steps.unobserved)
    try:
        left = sum(not _settled(problem, repairs=options.repairs) for problem in problems(opened))
    finally:
        opened.release()
    print(f"{left} problems left" if left else "nothing is wrong", file=sys.stdout)  # noqa: T201
    return FINDINGS if left else CLEAN


def _settled(problem: Problem, *, repairs: bool) -> bool:
    """Tell of a problem and repair it where wanted; whether it is gone."""
    outcome = "a person must look at it" if problem.repair is None else "repair removes it"
    is_gone = False
    if repairs and problem.repair is not None:
        try:
            problem.repair()
            outcome, is_gone = "removed", True
        except (OSError, RpcError) as error:
            outcome = f"cannot be removed: {error}"
    print(f"{problem.text}: {outcome}", file=sys.stdout)  # noqa: T201
    return is_gone


def problems(opened: opening.Opened) -> Iterator[Problem]:
    """Yield everything that is wrong; what shows rubbish comes before the rubbish itself."""
    storage = opened.storage
    for record_id, text in {**storage.catalog.damaged, **storage.shelf.damaged}.items():
        yield Problem(f"record {record_id}: {text}")
    for volume in storage.catalog.all():
        for finding in health.of_volume(storage, volume, on_node=True):
            yield Problem(f"volume {volume.volume_id}: {finding.reason}: {finding.message}")
    for snapshot in storage.shelf.snapshots:
        backend = storage.backends.get(snapshot.backend)
        if backend is not None and snapshot.snapshot_id not in backend.contents():
            yield Problem(f"snapshot {snapshot.snapshot_id}: its content is gone")
    yield from _rubbish(storage)
    yield from _unowned_devices(storage)


def _rubbish(storage: Storage) -> Iterator[Problem]:
    rubbish = storage.leftovers()
    held = [(one, backend) for backend in storage.backends.values() for one in backend.contents()]
    for content_id, backend in held:
        if content_id not in rubbish:
            continue
        for mount in reversed(backend.sightings(content_id)):
            yield Problem(
                f"mount of {content_id}, which no record knows, at {mount.point}",
                _unmounting(mount.point),
            )
        yield Problem(
            f"content {content_id} of backend {backend.offer.name}, which no record knows",
            _removing(backend, content_id),
        )


def _unmounting(point: str) -> Callable[[], None]:
    return lambda: mounts.unmount(pathlib.Path(point))


def _removing(backend: Backend, content_id: str) -> Callable[[], None]:
    def remove() -> None:
        backend.release(content_id)
        backend.remove(content_id)

    return remove


def _unowned_devices(storage: Storage) -> Iterator[Problem]:
    """Find devices of images that are gone: only the device holds the file any more."""
    image = storage.backends.get("image")
    for number, path in loops.of_deleted(image.folder) if image is not None else ():
        yield Problem(f"/dev/loop{number} shows the deleted {path}", _detaching(number))


def _detaching(number: int) -> Callable[[], None]:
    return lambda: loops.detach(loops.Loop(number, is_read_only=False, is_autoclear=False))
