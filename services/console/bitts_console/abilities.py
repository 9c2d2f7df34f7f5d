"""Finds out what this machine and this user may do, before anything is tried."""

import pathlib
import shutil

from bitts_console.scenario import Abilities

CAP_SYS_ADMIN = 21
FILESYSTEMS = ("ext4", "xfs")
LOOP_CONTROL = pathlib.Path("/dev/loop-control")
STATUS = pathlib.Path("/proc/self/status")


def find() -> Abilities:
    """Return what can be done here. Blocking, but quick."""
    mounts = has_capability(STATUS.read_text(), CAP_SYS_ADMIN)
    if not mounts:
        return Abilities(mounts=False, filesystems=frozenset(), hindrance="run it as root")
    if not LOOP_CONTROL.exists():
        hindrance = f"{LOOP_CONTROL} is missing (modprobe loop)"
        return Abilities(mounts=True, filesystems=frozenset(), hindrance=hindrance)
    if not shutil.which("losetup"):
        return Abilities(True, frozenset(), "losetup is missing (package mount)")
    made = frozenset(name for name in FILESYSTEMS if shutil.which(f"mkfs.{name}"))
    return Abilities(mounts=True, filesystems=made, hindrance="" if made else "mkfs is missing")


def has_capability(status: str, number: int) -> bool:
    """Whether ``/proc/self/status`` says that a capability is in effect."""
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> number & 1)
