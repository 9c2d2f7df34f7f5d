"""Images as bytes of an OCI layout, which nodes load without a registry. Pure.

The format is that of the OCI image specification, with the names by which containerd takes
images over from an archive.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where containers look for programs unless an image says otherwise."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_OCI = "application/vnd.oci.image"

Member = tuple[tarfile.TarInfo, bytes]
"""One entry of a layer; the content of what is not a regular file is empty."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with their name in a layout; several images may have one layer."""

    content: bytes
    digest: str

    @property
    def path(self) -> str:
        """Where a layout keeps it."""
        return f"blobs/{self.digest.replace(':', '/')}"


@dataclass(frozen=True, slots=True)
class Image:
    """A name, its layers from the lowest up, and what containers of it run by default."""

    name: str
    layers: tuple[Blob, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    path: str = PATH


def blob(content: bytes) -> Blob:
    """Name some bytes."""
    return Blob(content, digest(content))


def digest(content: bytes) -> str:
    """Return a blob's name in an OCI layout."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(images: Sequence[Image], machine: str) -> bytes:
    """Return what ``write`` writes."""
    output = io.BytesIO()
    write(output, images, machine)
    return output.getvalue()


def write(output: IO[bytes], images: Sequence[Image], machine: str) -> None:
    """Write an OCI layout as a tar archive.

    ``machine`` is the kernel's name of the architecture. The same input gives the same bytes.
    """
    blobs: dict[str, Blob] = {}
    manifests = []
    for image in images:
        config = _config(image, _ARCHITECTURES.get(machine, machine))
        manifest = _manifest(config, image.layers)
        blobs |= {one.path: one for one in (*image.layers, config, manifest)}
        names = {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name,
        }
        manifests.append(_descriptor("manifest.v1+json", manifest) | {"annotations": names})
    members = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": manifests}),
        **{path: one.content for path, one in blobs.items()},
    }
    _pack(output, (regular(name, content) for name, content in members.items()))


def layer(members: Iterable[Member]) -> Blob:
    """Return a layer of some entries."""
    output = io.BytesIO()
    _pack(output, members)
    return blob(output.getvalue())


def folder(name: str, mode: int = 0o755) -> Member:
    """Return a folder."""
    return _member(name, tarfile.DIRTYPE, mode), b""


def link(name: str, target: str) -> Member:
    """Return a symbolic link."""
    member = _member(name, tarfile.SYMTYPE, 0o777)
    member.linkname = target
    return member, b""


def regular(name: str, content: bytes, mode: int = 0o644, mtime: int = 0) -> Member:
    """Return a file; ``mtime`` is in seconds since 1970."""
    member = _member(name, tarfile.REGTYPE, mode)
    member.size, member.mtime = len(content), mtime
    return member, content


def _pack(output: IO[bytes], members: Iterable[Member]) -> None:
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)


def _config(image: Image, architecture: str) -> Blob:
    runs = {"Env": [f"PATH={image.path}"], "Cmd": list(image.command)}
    if image.entrypoint:
        runs["Entrypoint"] = list(image.entrypoint)
    return _json_blob(
        {
            "architecture": architecture,
            "os": "linux",
            "config": runs,
            "rootfs": {"type": "layers", "diff_ids": [one.digest for one in image.layers]},
        }
    )


def _manifest(config: Blob, layers: Sequence[Blob]) -> Blob:
    return _json_blob(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar", one) for one in layers],
        }
    )


def _descriptor(kind: str, one: Blob) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": one.digest, "size": len(one.content)}


def _json_blob(value: Mapping[str, Any]) -> Blob:
    return blob(_json(value))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    return member
