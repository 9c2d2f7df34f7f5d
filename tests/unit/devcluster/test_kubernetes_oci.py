"""Images as OCI layouts: layers in their order, each once, and what containers run."""

import io
import json
import tarfile

from devcluster.kubernetes import oci

LOWER = oci.layer([oci.folder("etc"), oci.regular("etc/name", b"lower", mtime=7)])
UPPER = oci.layer([oci.link("program", "/opt/program"), oci.regular("x" * 120, b"long", 0o755)])


def unpack(content: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        handles = {one.name: (one, tar.extractfile(one) if one.isreg() else None) for one in tar}
        return {name: (one, it.read() if it else b"") for name, (one, it) in handles.items()}


def test_images_share_layers_and_keep_their_order() -> None:
    images = [
        oci.Image("a:1", (LOWER, UPPER), entrypoint=("/program",)),
        oci.Image("b:1", (LOWER,), command=("sh",), path="/opt:/bin"),
    ]
    files = unpack(oci.archive(images, "aarch64"))
    index = json.loads(files["index.json"][1])["manifests"]
    manifests = [json.loads(blob(files, one["digest"])) for one in index]
    layers = [[one["digest"] for one in manifest["layers"]] for manifest in manifests]
    assert layers == [[LOWER.digest, UPPER.digest], [LOWER.digest]]
    first, second = (json.loads(blob(files, one["config"]["digest"])) for one in manifests)
    assert first["rootfs"]["diff_ids"] == layers[0]
    assert (first["config"]["Entrypoint"], first["config"]["Cmd"]) == (["/program"], [])
    assert "Entrypoint" not in second["config"]
    assert second["config"]["Env"] == ["PATH=/opt:/bin"]
    assert second["architecture"] == "arm64"
    assert sum(name.startswith("blobs/") for name in files) == 2 + 2 * len(images)


def blob(files: dict[str, tuple[tarfile.TarInfo, bytes]], digest: str) -> bytes:
    return files[f"blobs/{digest.replace(':', '/')}"][1]


def test_a_layer_keeps_modes_times_links_and_long_names() -> None:
    lower, upper = unpack(LOWER.content), unpack(UPPER.content)
    assert (lower["etc/name"][0].mtime, lower["etc/name"][1]) == (7, b"lower")
    assert upper["program"][0].linkname == "/opt/program"
    assert (upper["x" * 120][0].mode, upper["x" * 120][1]) == (0o755, b"long")
