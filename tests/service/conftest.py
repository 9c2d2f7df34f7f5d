"""A driver on a node of the shared cluster, for the tests of one module."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator

import pytest
from support import cluster as clusters
from support import kubeletside, processes, servers, workloads


@pytest.fixture(scope="module")
def plugin(
    _shared_server: servers.Server,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[kubeletside.Plugin]:
    """A driver with everything that belongs beside it; see ``kubeletside``.

    A module whose driver is to be another says so by a class ``Plugin`` of its own.
    """
    if not _shared_server.alive:
        _shared_server.start_blocking()
    directory = clusters.short_directory()
    logs = tmp_path_factory.mktemp("plugin")
    kind = getattr(request.module, "Plugin", kubeletside.Plugin)
    made: kubeletside.Plugin = kind(_shared_server, processes.Processes(logs), directory)
    try:
        finished(made.start())
        yield made
    finally:
        finished(made.close())
        clusters.remove_tree(directory)


def finished(work: Coroutine[None, None, None]) -> None:
    """Run a coroutine outside of any test's event loop."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


@pytest.fixture
async def work(
    plugin: kubeletside.Plugin, cluster: clusters.Cluster
) -> AsyncIterator[workloads.Work]:
    """What a test makes on the plugin's node; whatever is left at its end fails it."""
    made = workloads.Work(cluster, plugin)
    await made.prepare()
    yield made
    await made.clear()
