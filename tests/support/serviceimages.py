"""Images of our services and of what stands beside them, loaded into nodes without a registry.

What an image holds is read from its service's Dockerfile (``dockerfiles``), the files are this
machine's (``rootfs``). Upstream's programs are static, so an image of them is one file.
"""

import asyncio
import os
import pathlib
import platform
import shutil
from collections.abc import Callable, Iterable

from devcluster import gobuild
from devcluster.kubernetes import binaries, images, nodeplan, nodes, oci

from support import dockerfiles, peers, processes, rootfs, servers

REGISTRY = "registry.example"
VERSION = "0.1.0"
TARGETS = {
    "cni-daemon": ("cni-daemon", ""),
    "csi-node-driver-registrar": ("registrar", "csi-node-driver-registrar"),
    "csi-provisioner": ("provisioner", ""),
    "livenessprobe": ("registrar", "livenessprobe"),
    "local-driver": ("local-driver", ""),
}
"""Image → folder of its service, and the Dockerfile's target where it has several."""
UPSTREAM = "registry.k8s.io/sig-storage/csi-provisioner:v6.4.0"
"""By this name manifests call upstream's program; ``peers`` builds this version."""
KUBECTL = f"{REGISTRY}/tools/kubectl:1.37"
IMPORT_TIMEOUT = 60.0


def name(service: str) -> str:
    """Return how manifests call an image of ours."""
    return f"{REGISTRY}/bitts/{service}:{VERSION}"


def recipe(service: str) -> dockerfiles.Recipe:
    """Return what a service's Dockerfile says."""
    folder, target = TARGETS[service]
    text = (rootfs.ROOT / "services" / folder / "Dockerfile").read_text()
    return dockerfiles.read(text, target)


def write(path: pathlib.Path, services: Iterable[str], *more: oci.Image) -> None:
    """Write an archive with images of services and others. Blocking: seconds."""
    maker = _Maker()
    made = [maker.image(one) for one in services]
    with path.open("wb") as output:
        oci.write(output, [*made, *more], platform.machine())


def kubectl() -> oci.Image:
    """Return an image with kubectl and a shell."""
    shell = pathlib.Path(shutil.which("busybox") or "busybox")
    program = binaries.ready(["kubectl"], os.environ)["kubectl"]
    lower = images.layer(shell.read_bytes(), nodes.applets(str(shell)))
    upper = oci.layer([oci.regular("bin/kubectl", program.read_bytes(), 0o755)])
    return oci.Image(KUBECTL, (lower, upper), command=("sh",))


def upstream() -> oci.Image:
    """Return an image of upstream's csi-provisioner; mark with ``builds("csi-provisioner")``."""
    module = peers.MODULES / "csi-provisioner"
    package = gobuild.tools(module)["csi-provisioner"]
    version = gobuild.version((module / "go.mod").read_text(), package)
    assert UPSTREAM.endswith(f":{version}"), f"the program is of {version}"
    program = gobuild.place(module, "csi-provisioner").read_bytes()
    layer = oci.layer([oci.regular("csi-provisioner", program, 0o755)])
    return oci.Image(UPSTREAM, (layer,), entrypoint=("/csi-provisioner",))


async def load(machine: servers.Machine, archive: pathlib.Path) -> None:
    """Have a node's runtime take the images of an archive."""
    ctr = await asyncio.to_thread(lambda: binaries.ready(["ctr"], os.environ)["ctr"])
    words = (f"--address={nodeplan.CONTAINERD_SOCKET}", "--namespace=k8s.io", "images", "import")
    command = [*machine.enter, str(ctr), *words, str(archive)]
    await processes.run(command, timeout=IMPORT_TIMEOUT)


class _Maker:
    """Makes each layer once; lives no longer than needed, since layers are large."""

    def __init__(self) -> None:
        self._layers: dict[object, oci.Blob] = {}

    def image(self, service: str) -> oci.Image:
        """Return the image of a service."""
        found = recipe(service)
        shim = rootfs.shim() if found.has_shim else None
        layers = (
            self._once(("base", found.is_compiled), lambda: _base(is_compiled=found.is_compiled)),
            self._once((found.packages, rootfs.closure(found)), lambda: _below(found)),
            oci.layer(rootfs.sources(found, shim)),
        )
        path = found.path.replace("$PATH", oci.PATH) or oci.PATH
        return oci.Image(name(service), layers, entrypoint=found.entrypoint, path=path)

    def _once(self, key: object, make: Callable[[], oci.Blob]) -> oci.Blob:
        if key not in self._layers:
            self._layers[key] = make()
        return self._layers[key]


def _base(*, is_compiled: bool) -> oci.Blob:
    folders = [oci.folder(path, mode) for path, mode in rootfs.FOLDERS.items()]
    tree = rootfs.base(is_compiled=is_compiled)
    return oci.layer([*folders, *rootfs.members(tree)])


def _below(found: dockerfiles.Recipe) -> oci.Blob:
    tree = rootfs.packages(found.packages) | rootfs.environment(rootfs.closure(found))
    return oci.layer(rootfs.members(tree))
