"""Calls of plugins as values, for tests of plans: no kernel, no files."""

import itertools
import json
import random
from collections.abc import Mapping
from typing import Any

from bitts.cni import config, environment, results, versions
from bitts.cni.environment import Command
from bitts.cni.results import Result
from cni_daemon.model import Call, Draws

NETNS = "/run/netns/p"


def draws() -> Draws:
    """Return chance that is the same every time."""
    return Draws(random.Random(1), itertools.count(1000))


def call(
    document: Mapping[str, Any],
    *,
    command: str = "ADD",
    args: str = "",
    addressing: Result | None = None,
    container: str = "c1",
) -> Call:
    """Return the call of a plugin with this configuration."""
    whole = {"cniVersion": "1.1.0", "name": "net", **document}
    invocation = environment.read(
        {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": NETNS,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin",
            "CNI_ARGS": args,
        }
    )
    read = config.read_request(json.dumps(whole).encode(), Command(command), versions.ALL)
    return Call(invocation, read, draws(), read.previous, addressing)


def addressed(*ips: str, routes: tuple[str, ...] = ()) -> Result:
    """Return an IPAM answer: each address may name its gateway after a space."""
    found = []
    for text in ips:
        address, _, gateway = text.partition(" ")
        found.append(
            results.Ip(
                results.parse_interface(address),
                results.parse_address(gateway) if gateway else None,
            )
        )
    wanted = tuple(results.Route(results.parse_interface(each)) for each in routes)
    return Result(ips=tuple(found), routes=wanted)
