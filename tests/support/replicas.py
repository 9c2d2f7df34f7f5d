"""Replicas of csi-provisioner that elect a leader: ours, and upstream's beside them.

Both tell replicas apart by the name of their host, so each gets one of its own (needs root).
"""

import pathlib
import sys

from support import peers, processes, provisioning
from support.provisioning import Stand

NAMED = (
    "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
)
DURATIONS = [
    "--leader-election-lease-duration=5s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=200ms",
]


def ours(stand: Stand, host: str) -> processes.Process:
    """Start our program on a host of this name."""
    words = [f"--introspection-socket={stand.folder}/{host}.sock"]
    return _start(stand, host, [processes.script("csi-provisioner"), *words])


def upstreams(stand: Stand, host: str, program: pathlib.Path) -> processes.Process:
    """Start upstream's program (``upstream``) on a host of this name."""
    return _start(stand, host, [str(program), "-v=5"])


def upstream() -> pathlib.Path:
    """Return upstream's program; mark with ``builds("csi-provisioner")``."""
    return peers.tool("csi-provisioner")


def _start(stand: Stand, host: str, program: list[str]) -> processes.Process:
    command = [
        *program,
        f"--csi-address={stand.csi.path}",
        f"--kubeconfig={stand.cluster.kubeconfig}",
        "--immediate-topology=false",
        "--retry-interval-start=100ms",
        "--leader-election",
        f"--leader-election-namespace={stand.cluster.namespace}",
        *DURATIONS,
    ]
    named = ["/usr/bin/unshare", "--uts", sys.executable, "-c", NAMED, host, *command]
    return stand.cluster.processes.spawn(named, name=host)


async def leading(process: processes.Process) -> None:
    """Wait until a replica of ours works."""
    await process.wait_for_output(provisioning.STARTED)


async def holds(stand: Stand, host: str) -> None:
    """Wait until the Lease says that a host leads: client-go's format, whoever it is."""
    lease = stand.driver.name.replace(".", "-")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{stand.cluster.namespace}/leases/{lease}"
    await stand.cluster.wait_for(
        path,
        lambda one: one and (one["spec"].get("holderIdentity") or "").startswith(host),
        f"a Lease held by {host}",
    )
