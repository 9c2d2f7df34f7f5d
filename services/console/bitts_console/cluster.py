"""What the console itself asks of the cluster: install the driver, wait until a node has it."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

from bitts.kube import client as clients
from bitts.kube import config, errors, kinds, patches

from bitts_console import stack

POLL = 0.05
REGISTRATION_TIMEOUT = 30.0


class ClusterError(Exception):
    """The cluster is not as it should be; the message says what is missing."""


@contextlib.asynccontextmanager
async def connect(kubeconfig: pathlib.Path) -> AsyncIterator[clients.Client]:
    """Open a client with the rights of a kubeconfig."""
    resolved = await config.load(str(kubeconfig))
    async with clients.Client.connect(resolved, user_agent="bitts-console") as client:
        yield client


async def install_driver(client: clients.Client) -> None:
    """Create the CSIDriver object, or bring an older one up to date."""
    wanted = stack.csi_driver()
    try:
        await client.create(kinds.CSI_DRIVERS, wanted)
    except errors.AlreadyExists:
        change = patches.merge({"spec": wanted["spec"]})
        await client.patch(kinds.CSI_DRIVERS, stack.DRIVER_NAME, change)


async def await_registration(client: clients.Client) -> None:
    """Wait until the node agent has found the driver and said so in its CSINode.

    Raises ClusterError after ``REGISTRATION_TIMEOUT`` seconds.
    """
    try:
        async with asyncio.timeout(REGISTRATION_TIMEOUT):
            while not await _is_registered(client):  # noqa: ASYNC110  # a state elsewhere
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise ClusterError(
            f"CSINode {stack.FIRST_NODE} does not list {stack.DRIVER_NAME} after "
            f"{REGISTRATION_TIMEOUT:g} s: see the logs of {stack.FIRST_NODE} and local-driver"
        ) from None


async def _is_registered(client: clients.Client) -> bool:
    try:
        found = await client.get(kinds.CSI_NODES, stack.FIRST_NODE)
    except errors.NotFound:
        return False
    return any(driver.name == stack.DRIVER_NAME for driver in found.spec.drivers or ())
