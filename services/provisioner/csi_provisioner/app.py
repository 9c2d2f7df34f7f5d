"""Puts the process together: driver, API server, endpoints, election; then the loops.

The order is upstream's (connect, Probe, name, capabilities, endpoints, election), so that what
is wrong is reported by the first thing that needs it.
"""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import random
import socket
import time
import uuid

import bitts
from bitts.core import logs, sidecarflags
from bitts.core.metrics import CsiOperations, LeaderElectionMetrics, Registry
from bitts.core.process import ExitError, Process
from bitts.csi import driver as drivers
from bitts.csi.driver import Driver
from bitts.kube import config as configuration
from bitts.kube import errors, kinds, leases
from bitts.kube.client import Client
from bitts.kube.credentials import Fixed
from bitts.kube.events import EventRecorder
from bitts.kube.leases import LeaderElection
from bitts.kube.pacing import Pacing

from csi_provisioner import intents, names, options, stopping, stores
from csi_provisioner.answers import Answers
from csi_provisioner.leading import Leading, Ties
from csi_provisioner.model import Policy
from csi_provisioner.options import FATAL, Options

_USER_AGENT = f"{names.PROGRAM}/{bitts.__version__}"
_SUPERSEDES = {names.PROVISIONING_SUCCEEDED: (names.PROVISIONING,)}


async def main(process: Process, chosen: Options) -> None:
    """Run until asked to stop. Raises ExitError with the exit code of what went wrong."""
    logs.configure(chosen.sidecar.logs, names.PROGRAM)
    process.log.info("Starting", version=bitts.__version__)
    for warning in chosen.warnings:
        process.log.warning("Command line", text=warning)
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(stopping.StoppedError):
            ties = await stopping.before(process, _tie(process, chosen, stack))
            await _work(ties, stack)


async def _tie(process: Process, chosen: Options, stack: contextlib.AsyncExitStack) -> Ties:
    """Connect to everything; what has to be closed again goes on the stack."""
    config = await _config(chosen)
    client = await _connect(stack, config, chosen.sidecar.pacing)
    registry = Registry()
    registry.registrations()
    driver = await _connect_driver(process, chosen, registry)
    stack.push_async_callback(driver.close)
    policy = await _policy(process, chosen, client, driver)
    capacity = chosen.capacity
    component = f"{policy.driver_name}_{socket.gethostname()}_{uuid.uuid4()}"
    return Ties(
        process=process,
        options=chosen,
        policy=policy,
        identity=_identity(policy.driver_name),
        driver=driver,
        client=client,
        capacity_client=await _connect(stack, config, capacity.pacing) if capacity else None,
        recorder=EventRecorder(client, component, supersedes=_SUPERSEDES),
        journal=intents.Journal(await _store(chosen, client, policy.driver_name)),
        registry=registry,
    )


async def _work(ties: Ties, stack: contextlib.AsyncExitStack) -> None:
    process = ties.process
    process.start("events", ties.recorder.run())
    process.start("intents", ties.journal.run())
    leading = Leading(ties)
    election = _election(ties) if ties.options.sidecar.election.enabled else None
    answers = Answers(ties, leading, election)
    stack.push_async_callback(answers.stop)
    await answers.start()
    if election is None:
        await leading.lead()
    else:
        await _take_part(process, election, leading)


async def _take_part(process: Process, election: LeaderElection, leading: Leading) -> None:
    """Wait for leadership and lead. A follower stops at once; a leader ends its work first."""
    running = asyncio.create_task(election.run(leading.lead), name="election")
    asked = asyncio.create_task(process.stopping.wait(), name="asked to stop")
    try:
        await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not election.is_leader:
            running.cancel()
        await asyncio.wait({running})
    finally:
        asked.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait({running})  # it gives the Lease back
    if not running.cancelled():
        running.result()


async def _config(chosen: Options) -> configuration.Config:
    # Upstream's order: the environment wins over the flag.
    path = "" if os.environ.get("KUBECONFIG") else chosen.sidecar.kubeconfig
    try:
        if chosen.master and not path and not os.environ.get("KUBECONFIG"):
            return configuration.Config(chosen.master.rstrip("/"), "--master", Fixed())
        found = await configuration.load(path, use_environment=True)
    except configuration.ConfigError as error:
        raise ExitError(FATAL, str(error)) from error
    if not chosen.master:
        return found
    return dataclasses.replace(found, server=chosen.master.rstrip("/"), origin="--master")


async def _connect(
    stack: contextlib.AsyncExitStack,
    config: configuration.Config,
    pacing: sidecarflags.PacingOptions,
) -> Client:
    paced = Pacing.from_flags(pacing.qps, pacing.burst)
    try:
        return await stack.enter_async_context(
            Client.connect(config, user_agent=_USER_AGENT, pacing=paced)
        )
    except configuration.ConfigError as error:
        raise ExitError(FATAL, str(error)) from error


async def _connect_driver(process: Process, chosen: Options, registry: Registry) -> Driver:
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_lost(reason: str) -> None:
        if not lost.done():
            lost.set_result(reason)

    async def fail_when_lost() -> None:
        reason = await lost
        if process.stopping.is_set():
            return  # a pod's containers end together: what can be finished still is
        process.log.error("The driver's end of the connection is gone", err=reason)
        raise ExitError(1, drivers.LOST_CONNECTION, termination_log=True)

    process.start("driver connection", fail_when_lost())
    try:
        return await Driver.connect(
            chosen.sidecar.csi_address,
            timeout=chosen.sidecar.timeout,
            metrics=CsiOperations(registry).observe,
            on_lost=on_lost,
        )
    except drivers.DriverError as error:
        raise ExitError(FATAL if error.is_ready else 1, str(error)) from error


async def _policy(process: Process, chosen: Options, client: Client, driver: Driver) -> Policy:
    info, gates = driver.info, chosen.gates
    process.log.info(
        "Driver", driver=info.name, plugin=sorted(info.plugin), controller=sorted(info.controller)
    )
    if chosen.capacity is not None and "GET_CAPACITY" not in info.controller:
        hint = "remove --enable-capacity, or have the driver report GET_CAPACITY"
        process.log.error("The driver cannot tell its capacity", hint=hint)
    return Policy(
        driver_name=info.name,
        plugin=frozenset(map(str, info.plugin)),
        controller=frozenset(map(str, info.controller)),
        name_prefix=chosen.name_prefix,
        name_length=chosen.name_length,
        default_fstype=chosen.default_fstype,
        extra_metadata=chosen.extra_metadata,
        publish_readonly=chosen.publish_readonly,
        attributes_classes=await _has_attributes_classes(process, chosen, client),
        topology=options.TOPOLOGY in gates and "VOLUME_ACCESSIBILITY_CONSTRAINTS" in info.plugin,
        placing=chosen.placing,
    )


async def _has_attributes_classes(process: Process, chosen: Options, client: Client) -> bool:
    """The gate, switched off by itself if the cluster does not know VolumeAttributesClasses."""
    is_on = options.ATTRIBUTES_CLASSES in chosen.gates
    if not is_on or options.ATTRIBUTES_CLASSES in chosen.sidecar.gates:
        return is_on
    kind = kinds.VOLUME_ATTRIBUTES_CLASSES
    try:
        return await client.has_resource(kind.group, kind.version, kind.plural)
    except errors.ApiError as error:
        process.log.warning("Cannot see whether there are VolumeAttributesClasses", err=error)
        return True


async def _store(chosen: Options, client: Client, driver_name: str) -> intents.Store:
    match chosen.intent_journal:
        case "lease":
            namespace = chosen.sidecar.election.namespace or await leases.own_namespace()
            identity = f"{socket.gethostname()}-{uuid.uuid4()}"
            return stores.LeaseStore(client, namespace, driver_name, identity)
        case "file":
            beside = pathlib.Path(sidecarflags.socket_path(chosen.sidecar.csi_address)).parent
            return stores.FileStore(beside / stores.FILE_NAME)
        case _:
            return stores.NoStore()


def _identity(driver_name: str) -> str:
    """Names this run of the process in the volumes that it makes."""
    number = random.randrange(10_000)  # noqa: S311 - tells runs apart, protects nothing
    return f"{time.time_ns() // 1_000_000}-{number}-{driver_name}"


def _election(ties: Ties) -> LeaderElection:
    host, lock = socket.gethostname(), ties.policy.driver_name.replace("/", "-")
    recorder = EventRecorder(ties.client, f"{lock}/{host}")
    ties.process.start("election events", recorder.run())
    metrics = LeaderElectionMetrics(ties.registry)
    try:
        return LeaderElection(
            ties.client,
            ties.options.sidecar.election,
            lock,
            host,
            recorder=recorder,
            on_status=lambda leading: metrics.leading(leader=leading),
            on_slow_path=metrics.slow,
        )
    except leases.ElectionError as error:
        raise ExitError(2, str(error)) from error
