"""``runtimeConfig``: what runtimes hand to plugins that declare a capability.

containerd writes these with Go's field names (``HostPort``), others in lower camel case; both
are read, as everywhere, without regard to case.
"""

from dataclasses import dataclass

from bitts.cni.documents import Fields

PORT_MAPPINGS = "portMappings"
BANDWIDTH = "bandwidth"
IP_RANGES = "ipRanges"
IPS = "ips"
MAC = "mac"
DNS = "dns"
DEVICE_ID = "deviceID"
POD_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"


@dataclass(frozen=True, slots=True)
class PortMapping:
    """A port of the host that leads to one of the container; an empty host IP is any."""

    host_port: int
    container_port: int
    protocol: str
    host_ip: str = ""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Rates in bit/s and bursts in bits, as seen from the container; zero is no limit."""

    ingress_rate: int = 0
    ingress_burst: int = 0
    egress_rate: int = 0
    egress_burst: int = 0


def port_mappings(runtime: Fields) -> tuple[PortMapping, ...]:
    """Read the port mappings of a runtimeConfig."""
    return tuple(
        PortMapping(
            each.integer("hostPort"),
            each.integer("containerPort"),
            each.text("protocol").lower(),
            each.text("hostIP"),
        )
        for each in runtime.objects(PORT_MAPPINGS)
    )


def bandwidth(fields: Fields) -> Bandwidth:
    """Read limits, from a runtimeConfig's ``bandwidth`` or from the plugin's own keys."""
    return Bandwidth(
        fields.integer("ingressRate", low=0, high=2**64),
        fields.integer("ingressBurst", low=0, high=2**64),
        fields.integer("egressRate", low=0, high=2**64),
        fields.integer("egressBurst", low=0, high=2**64),
    )
