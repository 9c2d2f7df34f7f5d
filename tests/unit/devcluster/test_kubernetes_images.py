"""The image made from busybox: a valid OCI layout, the same bytes each time."""

import io
import json
import pathlib
import shutil
import tarfile
from typing import Any

import pytest
from devcluster.kubernetes import images, oci

PROGRAM = b"\x7fELF\x02" + bytes(100)


def unpack(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isreg()}
        return {name: handle.read() for name, handle in files.items() if handle is not None}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert oci.digest(content) == descriptor["digest"]
    assert len(content) == descriptor["size"]
    return content


def test_every_name_leads_to_a_layer_with_the_program_and_its_links() -> None:
    files = unpack(images.archive(PROGRAM, ["ls", "sh", "busybox"], "x86_64"))
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    manifests = json.loads(files["index.json"])["manifests"]
    names = [one["annotations"]["io.containerd.image.name"] for one in manifests]
    assert names == [images.BUSYBOX, images.PAUSE]
    for descriptor in manifests:
        manifest = json.loads(blob(files, descriptor))
        config = json.loads(blob(files, manifest["config"]))
        layer = blob(files, manifest["layers"][0])
        assert config["architecture"] == "amd64"
        assert config["rootfs"]["diff_ids"] == [oci.digest(layer)]
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            program = tar.extractfile("bin/busybox")
            assert program is not None
            assert program.read() == PROGRAM
            assert tar.getmember("bin/sh").linkname == "busybox"
            assert tar.getmember("tmp").mode == 0o1777


def test_the_same_program_gives_the_same_bytes() -> None:
    first, second = (images.archive(PROGRAM, ["sh"], "aarch64") for _ in range(2))
    assert first == second


def elf(*kinds: int) -> bytes:
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    header[32:40] = (64).to_bytes(8, "little")
    header[54:56] = (56).to_bytes(2, "little")
    header[56:58] = len(kinds).to_bytes(2, "little")
    return bytes(header) + b"".join(kind.to_bytes(4, "little") + bytes(52) for kind in kinds)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(elf(1, 1), True, id="static"),
        pytest.param(elf(1, 3), False, id="asks for a loader"),
        pytest.param(b"#!/bin/sh\n", False, id="a script"),
        pytest.param(b"", False, id="nothing"),
    ],
)
def test_static_programs_are_told_from_others(program: bytes, expected: bool) -> None:
    assert images.is_static(program) is expected


def test_a_shell_of_this_machine_is_not_static() -> None:
    shell = shutil.which("bash")
    if shell is not None:
        assert images.is_static(pathlib.Path(shell).read_bytes()) is False
