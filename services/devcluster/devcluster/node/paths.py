"""Where everything lies below the agent's folder: the kubelet's layout, which drivers rely on."""

import hashlib
import pathlib


class Layout:
    """Paths below one root folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.registry = root / "plugins_registry"
        self.plugins = root / "plugins"
        self.pods = root / "pods"

    def pod(self, uid: str) -> pathlib.Path:
        """A pod's folder."""
        return self.pods / uid

    def log(self, uid: str, container: str) -> pathlib.Path:
        """Where a container's output goes."""
        return self.pods / uid / f"{container}.log"

    def container(self, uid: str, container: str) -> pathlib.Path:
        """Where a container's run is noted."""
        return self.pods / uid / "containers" / container

    def plain_volume(self, uid: str, plugin: str, name: str) -> pathlib.Path:
        """A volume that is a folder of ours (``empty-dir``, ``secret``, ``configmap``)."""
        return self.pods / uid / "volumes" / f"kubernetes.io~{plugin}" / name

    def staging(self, driver: str, volume: str, handle: str, *, block: bool) -> pathlib.Path:
        """Where a volume is staged, once for all pods of the node."""
        csi = self.plugins / "kubernetes.io" / "csi"
        if block:
            return csi / "volumeDevices" / "staging" / volume
        return csi / driver / hashlib.sha256(handle.encode()).hexdigest() / "globalmount"

    def target(self, uid: str, volume: str, *, block: bool) -> pathlib.Path:
        """Where a volume is published for one pod: a folder, or a device file."""
        if block:
            csi = self.plugins / "kubernetes.io" / "csi"
            return csi / "volumeDevices" / "publish" / volume / uid
        return self.pods / uid / "volumes" / "kubernetes.io~csi" / volume / "mount"
