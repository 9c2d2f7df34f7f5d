"""Command lines and configuration of the programs of a node. Pure.

Inside a node the usual places are its own: ``/var/lib/kubelet``, ``/var/lib/containerd``,
``/var/log`` and ``/run`` (see ``nodeinit``), so manifests with their paths work unchanged.
"""

import json
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass

from devcluster.kubernetes import addresses, images, podnetwork
from devcluster.kubernetes.layout import Layout

KUBELET_ROOT = "/var/lib/kubelet"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD = """version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = {cni_programs}
    conf_dir = "{cni}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""

KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {ca}}}
authorization: {{mode: Webhook}}
tlsCertFile: {pki}/kubelet-{name}.crt
tlsPrivateKeyFile: {pki}/kubelet-{name}.key
cgroupDriver: cgroupfs
cgroupRoot: /{identity}/{name}
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {{memory.available: 10Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
imageMinimumGCAge: 24h
clusterDNS: [{dns}]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://{socket}
resolvConf: {files}/resolv.conf
syncFrequency: 10s
volumePluginDir: {root}/volume-plugins
"""


@dataclass(frozen=True, slots=True)
class Places:
    """What the command lines of a node's programs need to know of the machine."""

    layout: Layout
    binaries: Mapping[str, pathlib.Path]
    port: int
    network: str = podnetwork.DAEMON


def configuration(layout: Layout, node: addresses.Node, network: str) -> dict[pathlib.Path, str]:
    """Return the configuration files of a node: path → content."""
    place = layout.node(node.name)
    return {
        place.files / "containerd.toml": CONTAINERD.format(
            socket=CONTAINERD_SOCKET,
            pause=images.PAUSE,
            cni=place.cni,
            cni_programs=json.dumps(podnetwork.plugin_folders(network)),
        ),
        place.files / "kubelet.yaml": KUBELET.format(
            ca=layout.directory / "ca.crt",
            pki=layout.pki,
            name=node.name,
            identity=layout.identity,
            dns=addresses.DNS_SERVICE,
            socket=CONTAINERD_SOCKET,
            files=place.files,
            root=place.files,
        ),
        place.cni / podnetwork.CONFIGURATION: json.dumps(
            podnetwork.configuration(network, node.pods), indent=2
        )
        + "\n",
    }


def containerd(places: Places, node: addresses.Node) -> list[str]:
    """Return the command line of containerd."""
    configuration = places.layout.node(node.name).files / "containerd.toml"
    return [str(places.binaries["containerd"]), f"--config={configuration}"]


def kubelet(places: Places, node: addresses.Node) -> list[str]:
    """Return the command line of kubelet."""
    layout = places.layout
    return [
        str(places.binaries["kubelet"]),
        f"--config={layout.node(node.name).files / 'kubelet.yaml'}",
        f"--kubeconfig={layout.pki / f'kubelet-{node.name}.kubeconfig'}",
        f"--root-dir={KUBELET_ROOT}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    ]


def proxy(places: Places, node: addresses.Node) -> list[str]:
    """Return the command line of kube-proxy; the kernel's conntrack settings stay as they are."""
    return [
        str(places.binaries["kube-proxy"]),
        f"--kubeconfig={places.layout.pki / 'kube-proxy.kubeconfig'}",
        "--proxy-mode=nftables",
        f"--hostname-override={node.name}",
        f"--cluster-cidr={addresses.PODS}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--metrics-bind-address=",
    ]


def node_object(node: addresses.Node) -> dict[str, object]:
    """Return the Node as it is made before its kubelet starts, so that its pods' subnet is known.

    Whoever lets the controller manager choose subnets gets them in the order of arrival.
    """
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}},
        "spec": {"podCIDR": node.pods, "podCIDRs": [node.pods]},
    }


def is_ready(node: Mapping[str, object] | None) -> bool:
    """Whether a Node object says that pods can run there."""
    status = (node or {}).get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
