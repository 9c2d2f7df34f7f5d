"""Limits of I/O kept in force, round after round, for as long as the process lives.

A volume may be published before kubelet has made its pod's control group, and whoever manages
that may take the limits away again. So what is recorded is compared with the kernel's now and then.
"""

import asyncio

from bitts.core import logs

from local_driver import iolimits, mounting
from local_driver.operations import Operations
from local_driver.storage import Storage
from local_driver.volumes import Volume

INTERVAL = 5.0
"""Seconds between two rounds."""

_log = logs.get("limits")


async def keep(storage: Storage, operations: Operations) -> None:
    """Keep the limits of all volumes that have some, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL)
        limited = [volume for volume in storage.catalog.all() if volume.mutable]
        found = await asyncio.to_thread(iolimits.index) if limited else {}
        for volume in limited if found else []:
            if not operations.at_work(volume.volume_id):
                await _renew(storage, volume, found)


async def _renew(storage: Storage, volume: Volume, found: iolimits.Index) -> None:
    backend = storage.backends.get(volume.backend)
    if backend is None:
        return
    try:
        await asyncio.to_thread(mounting.renew_limits, backend, volume, found)
    except OSError as error:  # a group or device that is just going
        _log.at(2).info("Limits cannot be renewed yet", volume=volume.volume_id, err=error)
