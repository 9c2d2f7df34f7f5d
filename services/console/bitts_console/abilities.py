"""Finds out what this machine and this user may do, before anything is tried."""

import os
import pathlib
import shutil

from bitts_console.scenario import Abilities

CAP_SYS_ADMIN = 21
FILESYSTEMS = ("ext4", "xfs", "btrfs")
KERNELS = pathlib.Path("/proc/filesystems")
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
    made = frozenset(
        name for name in FILESYSTEMS if shutil.which(f"mkfs.{name}") and is_in_kernel(name)
    )
    return Abilities(mounts=True, filesystems=made, hindrance="" if made else "mkfs is missing")


def is_in_kernel(filesystem: str) -> bool:
    """Whether the kernel has a file system, or a module of it that a mount would load."""
    if filesystem in KERNELS.read_text().split():
        return True
    folder = pathlib.Path("/lib/modules", os.uname().release)
    module = f"/{filesystem}.ko"
    lists = [folder / name for name in ("modules.dep", "modules.builtin")]
    return any(module in path.read_text() for path in lists if path.exists())


def has_capability(status: str, number: int) -> bool:
    """Whether ``/proc/self/status`` says that a capability is in effect."""
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> number & 1)
