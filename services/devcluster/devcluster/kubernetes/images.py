"""A small image made from the machine's static busybox. Pure.

It goes by two names: the one that manifests use, and that of the process which holds a pod's
namespaces, for which busybox's shell is good enough: it ends on SIGTERM and reaps what others
in the pod leave behind.
"""

from collections.abc import Sequence

from devcluster.kubernetes import oci

BUSYBOX = "docker.io/library/busybox:1.37"
PAUSE = "images.bitts.dev/pause:1"
_PAUSE_COMMAND = ("/bin/sh", "-c", "trap exit TERM INT; while :; do sleep 86400 & wait $!; done")
_FOLDERS = {"bin": 0o755, "dev": 0o755, "etc": 0o755, "proc": 0o755, "root": 0o700, "sys": 0o755}
_FOLDERS |= {"tmp": 0o1777, "usr": 0o755, "var": 0o755, "var/tmp": 0o1777}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_LINKS = {"sbin": "bin", "usr/bin": "../bin", "usr/sbin": "../bin"}


def is_static(program: bytes) -> bool:
    """Whether an ELF program needs no loader and no libraries (has no PT_INTERP segment)."""
    if program[:5] != b"\x7fELF\x02":  # every machine of today has 64 bits
        return False
    table = int.from_bytes(program[32:40], "little")
    size = int.from_bytes(program[54:56], "little")
    count = int.from_bytes(program[56:58], "little")
    kinds = (program[table + size * number :][:4] for number in range(count))
    return all(int.from_bytes(kind, "little") != 3 for kind in kinds)


def archive(busybox: bytes, applets: Sequence[str], machine: str) -> bytes:
    """Return an OCI layout as a tar archive, with the image under each of its names.

    ``machine`` is the kernel's name of the architecture. The same input gives the same bytes.
    """
    layers = (layer(busybox, applets),)
    images = (
        oci.Image(BUSYBOX, layers, command=("sh",)),
        oci.Image(PAUSE, layers, command=_PAUSE_COMMAND),
    )
    return oci.archive(images, machine)


def layer(busybox: bytes, applets: Sequence[str]) -> oci.Blob:
    """Return a root file system with a shell and its usual programs."""
    members = [oci.folder(name, mode) for name, mode in _FOLDERS.items()]
    members.append(oci.regular("bin/busybox", busybox, 0o755))
    members += [oci.regular(name, text.encode()) for name, text in _FILES.items()]
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"} | _LINKS
    members += [oci.link(name, target) for name, target in links.items()]
    return oci.layer(members)
