"""The composition of the node agent, and the order in which it starts and ends."""

import asyncio
import contextlib
import ctypes
import os
import pathlib
from collections.abc import AsyncIterator

import bitts
from bitts.core import exclusive, logs, process
from bitts.kube import cache as caches
from bitts.kube import client as clients
from bitts.kube import config as configuration
from bitts.kube import errors, events, kinds, objects, reflector
from bitts.rpc import health, introspection, server

from devcluster.node import membership, model, names, paths, plugins, pods, records, volumes
from devcluster.node.options import PROGRAM, Options

CAP_SYS_ADMIN = 21
SET_CHILD_SUBREAPER = 36
LEAVE_TIMEOUT = 3.0  # seconds to tell the cluster that the node goes


def run(options: Options) -> int:
    """Run the agent until it is told to stop; pods go on running."""
    logs.configure(options.logs, PROGRAM)
    return process.run(lambda running: _main(running, options), PROGRAM)


async def _main(running: process.Process, options: Options) -> None:
    layout = paths.Layout(options.root)
    await asyncio.to_thread(_prepare, layout)
    async with exclusive.holding(layout.root, PROGRAM, "--root-dir"):
        await _connect(running, options, layout)


async def _connect(running: process.Process, options: Options, layout: paths.Layout) -> None:
    try:
        config = await configuration.load(options.kubeconfig)
        agent = f"{PROGRAM}/{bitts.__version__}"
        async with clients.Client.connect(config, user_agent=agent) as client:
            await _serve(running, options, layout, client)
    except configuration.ConfigError as error:
        raise process.ExitError(1, str(error)) from error


async def _serve(
    running: process.Process, options: Options, layout: paths.Layout, client: clients.Client
) -> None:
    can_mount = await asyncio.to_thread(has_mount_rights)
    if not can_mount:
        running.log.warning("Pods will stay pending", reason=pods.NEEDS_ROOT)
    node = membership.Membership(client, options.name, can_mount=can_mount)
    drivers, known = plugins.Drivers(), records.Records(layout)
    cache: caches.Cache[model.Pod] = caches.Cache()
    attached: caches.Cache[objects.VolumeAttachment] = caches.Cache()
    recorder = events.EventRecorder(client, names.COMPONENT)
    mounter = volumes.Volumes(client, options.name, layout, drivers, known, attached)
    parts = pods.Parts(client, cache, known, mounter, node, recorder, layout, can_mount)
    loop = pods.Pods(parts)
    attached.subscribe(loop.attachment_changed)
    watched = plugins.Plugins(layout.registry, drivers, node, lambda _: loop.wake())
    await loop.load()
    await _join(node, loop)
    ours = f"spec.nodeName={options.name}"
    source = reflector.Reflector(client, model.PODS, cache, field_selector=ours)
    attachments = reflector.Reflector(client, kinds.VOLUME_ATTACHMENTS, attached)
    for name, work in (
        ("events", recorder.run()),
        ("pod watch", source.run()),
        ("attachment watch", attachments.run()),
        ("lease", node.keep_alive()),
        ("plugins", watched.run()),
    ):
        running.start(name, work)
    await cache.synced.wait()
    running.start("pods", loop.run())
    async with _introspection(layout, loop, running.log):
        running.started()
        if options.ready_file:
            await asyncio.to_thread(options.ready_file.write_text, f"{os.getpid()}\n")
        await running.stopping.wait()
        await _leave(node, recorder, drivers)


@contextlib.asynccontextmanager
async def _introspection(
    layout: paths.Layout, loop: pods.Pods, log: logs.Logger
) -> AsyncIterator[None]:
    """Answer what the agent does and why, on a socket in its folder."""
    sources = introspection.Sources(
        program=PROGRAM, version=bitts.__version__, ledger=loop.ledger, queues=[loop.queue]
    )
    path = str(layout.root / f"bitts-{PROGRAM}.sock")
    async with contextlib.AsyncExitStack() as stack:
        try:
            listener = server.Server([introspection.Introspection(sources), health.Health()], path)
            await listener.start()
            stack.push_async_callback(listener.stop, 0.5)
        except (OSError, ValueError) as error:
            log.warning("No introspection", err=error, socket=path)
        yield


async def _join(node: membership.Membership, loop: pods.Pods) -> None:
    try:
        await node.join()
        await loop.report_in_use()
    except errors.ApiError as error:
        raise process.ExitError(1, f"cannot register node {node.name}: {error}") from error


async def _leave(
    node: membership.Membership, recorder: events.EventRecorder, drivers: plugins.Drivers
) -> None:
    with contextlib.suppress(errors.ApiError, TimeoutError):
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await node.leave()
    await recorder.flush(1.0)
    await drivers.close()


def _prepare(layout: paths.Layout) -> None:
    """Make the folders; containers outlive their starter and are handed to us to reap."""
    for folder in (layout.registry, layout.plugins, layout.pods):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)


def has_mount_rights(status: pathlib.Path = pathlib.Path("/proc/self/status")) -> bool:
    """Whether this process may mount (root in a container without privileges may not)."""
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1)
    return False
