"""A small image made from the machine's static busybox, as bytes of an OCI layout. Pure.

Nodes load it without a registry. It goes by two names: the one that manifests use, and that
of the process which holds a pod's namespaces, for which busybox's shell is good enough: it
ends on SIGTERM and reaps what others in the pod leave behind.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BUSYBOX = "docker.io/library/busybox:1.37"
PAUSE = "images.bitts.dev/pause:1"
_PAUSE_COMMAND = ("/bin/sh", "-c", "trap exit TERM INT; while :; do sleep 86400 & wait $!; done")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FOLDERS = {"bin": 0o755, "dev": 0o755, "etc": 0o755, "proc": 0o755, "root": 0o700, "sys": 0o755}
_FOLDERS |= {"tmp": 0o1777, "usr": 0o755, "var": 0o755, "var/tmp": 0o1777}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_LINKS = {"sbin": "bin", "usr/bin": "../bin", "usr/sbin": "../bin"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Image:
    """A name and what containers of it run by default."""

    name: str
    command: tuple[str, ...]


IMAGES = (Image(BUSYBOX, ("sh",)), Image(PAUSE, _PAUSE_COMMAND))


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
    """Return an OCI layout as a tar archive, with every image of ``IMAGES``.

    ``machine`` is the kernel's name of the architecture. The same input gives the same bytes.
    """
    layer = _layer(busybox, applets)
    blobs: dict[str, bytes] = {digest(layer): layer}
    manifests = []
    for image in IMAGES:
        config = _config(image, digest(layer), _ARCHITECTURES.get(machine, machine))
        manifest = _manifest(config, layer)
        blobs |= {digest(config): config, digest(manifest): manifest}
        names = {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name,
        }
        manifests.append(_descriptor("manifest.v1+json", manifest) | {"annotations": names})
    members = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": manifests}),
        **{f"blobs/sha256/{name.removeprefix('sha256:')}": blob for name, blob in blobs.items()},
    }
    return _tar([(_regular(name, content, 0o644), content) for name, content in members.items()])


def digest(blob: bytes) -> str:
    """Return a blob's name in an OCI layout."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    members = [(_member(name, tarfile.DIRTYPE, mode), b"") for name, mode in _FOLDERS.items()]
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"} | _LINKS
    members.append((_regular("bin/busybox", busybox, 0o755), busybox))
    for name, text in _FILES.items():
        members.append((_regular(name, text.encode(), 0o644), text.encode()))
    for name, target in links.items():
        link = _member(name, tarfile.SYMTYPE, 0o777)
        link.linkname = target
        members.append((link, b""))
    return _tar(members)


def _config(image: Image, layer: str, architecture: str) -> bytes:
    return _json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": list(image.command), "Env": [f"PATH={_PATH}"]},
            "rootfs": {"type": "layers", "diff_ids": [layer]},
        }
    )


def _manifest(config: bytes, layer: bytes) -> bytes:
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar", layer)],
        }
    )


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": digest(blob), "size": len(blob)}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    return member


def _regular(name: str, content: bytes, mode: int) -> tarfile.TarInfo:
    member = _member(name, tarfile.REGTYPE, mode)
    member.size = len(content)
    return member


def _tar(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return output.getvalue()
