"""Rules of every test: no blocking call in our coroutines, no silent skip in CI, no leftovers.

Fixtures that start things live here too; what they give out is described in ``support``.
"""

import importlib.util
import os
import pathlib
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest
from blockbuster import BlockBuster
from devcluster.kubernetes import binaries
from support import building, isolation, kernelkinds, leaks, processes, selection, servers
from support import cluster as clusters

OUR_PACKAGES = [
    "bitts",
    "csi_provisioner",
    "devcluster",
    "local_driver",
    "bitts_console",
    "cni_daemon",
    "node_driver_registrar",
    "livenessprobe",
]
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

MAY_BLOCK = [
    # file and functions below which blocking is allowed, and why it does no harm
    # Runs in a thread, with an event loop of its own for the library's exec plugins.
    ("bitts/kube/kubeconfig.py", {"read"}),
    # Polled writable right before, and no longer than what a pipe then takes at once.
    ("bitts/core/sink.py", {"_put"}),
    # The kernel's own files about this process: no disk is behind them.
    ("bitts/core/metrics.py", {"collect"}),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    selection.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(kernelkinds)
    if runs_tests(config) and os.geteuid() == 0:
        isolation.own_mounts()
    if selection.wants_kubernetes(config):
        try:
            binaries.ready(binaries.EVERY, os.environ)
        except binaries.MissingError as error:
            raise pytest.UsageError(f"--cluster: {error}") from error


def runs_tests(config: pytest.Config) -> bool:
    """Whether tests run in this process: not in the one that hands them out to workers."""
    return not config.getoption("numprocesses", None) or hasattr(config, "workerinput")


def pytest_unconfigure(config: pytest.Config) -> None:
    clusters.remove_tree(pathlib.Path(processes.RUNTIME))
    if not hasattr(config, "workerinput"):
        isolation.sweep()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    selection.parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)  # before the groups are looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if MACHINE_WIDE & set(item.path.parts) and not is_tried_once(item):
            item.add_marker(pytest.mark.flaky(reruns=1))
    selection.leave_out(config, items)
    selection.group(items)
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: mounts, loop devices or namespaces")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)


MACHINE_WIDE = frozenset({"service", "net"})
"""Folders whose tests share the machine's processes, mounts, links and clock with whatever else
runs there. One that fails is tried once more; the summary counts it as rerun."""
ONCE = frozenset(
    {
        "test_chain_recovery",
        "test_churn",
        "test_link_recovery",
        "test_local_driver_crash",
        "test_local_driver_machine",
        "test_local_driver_power",
        "test_manifests",
        "test_provisioner_crash",
        "test_provisioner_election",
        "test_provisioner_intents",
        "test_provisioner_known_faults",
        "test_provisioner_swap",
        "test_recovery",
    }
)
"""Modules among them that show what a crash leaves: a leak one time in ten is a leak, and a
second try would hide it."""
NOTHING_LEFT = "nothing_is_left"
"""In the names of tests that compare the machine before and after: what a first try changes, a
second one finds already changed."""


def is_tried_once(item: pytest.Item) -> bool:
    """Whether a failure of a test counts at once."""
    return item.path.stem in ONCE or NOTHING_LEFT in item.name


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = selection.left_out(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker left out: it is the same for all."""
    output = getattr(node, "workeroutput", None) or {}
    node.config.stash[selection.LEFT_OUT] = output.get("left_out", {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in selection.report(config):
        terminalreporter.write_line(line)


def pytest_collection_finish(session: pytest.Session) -> None:
    building.build_wanted(session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        fail_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if IN_CI and report.skipped:
        fail_skipped(report)
    return report


def fail_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI a skipped test is a test that nobody runs: say so loudly."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"nothing may be skipped when CI=true: {reason}"


@pytest.fixture(scope="session", autouse=True)
def _no_blocking_calls() -> Iterator[None]:
    """Blocking calls raise when made from a coroutine with one of our modules on the stack."""
    present = [name for name in OUR_PACKAGES if importlib.util.find_spec(name)]
    guard = BlockBuster(scanned_modules=present)
    for call in guard.functions.values():
        for filename, functions in MAY_BLOCK:
            call.can_block_in(filename, functions)
    guard.activate()
    yield
    guard.deactivate()


@pytest.fixture
def spawner(tmp_path: pathlib.Path) -> Iterator[processes.Processes]:
    """Starts processes for one test and ends them all."""
    started = processes.Processes(tmp_path / "logs")
    yield started
    started.close()


@pytest.fixture
def short_dir() -> Iterator[pathlib.Path]:
    """A folder whose path is short enough for unix sockets; unmounted and removed at the end."""
    folder = clusters.short_directory()
    yield folder
    clusters.remove_tree(folder)


@pytest.fixture(scope="session")
def cluster_kind(request: pytest.FixtureRequest) -> str:
    """``embedded`` or ``kubernetes``."""
    kind: str = getattr(request, "param", None) or request.config.getoption("--cluster")
    return kind


@pytest.fixture(scope="session")
def _shared_server(
    cluster_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Server]:
    started = processes.Processes(tmp_path_factory.mktemp("server"))
    folder = clusters.short_directory()
    nodes = 2 if cluster_kind == "kubernetes" and os.geteuid() == 0 else 0
    server = servers.Server(started, folder / "c", kind=cluster_kind, nodes=nodes)
    server.start_blocking()
    yield server
    server.stop_blocking()
    started.close()
    clusters.remove_tree(folder)


@pytest.fixture
async def cluster(
    _shared_server: servers.Server, tmp_path: pathlib.Path
) -> AsyncIterator[clusters.Cluster]:
    """The shared API server with a namespace and a driver name for this test alone."""
    if not _shared_server.alive:  # a test killed it: the next one gets a new one
        await _shared_server.start()
    started = processes.Processes(tmp_path / "logs")
    async with clusters.Cluster(_shared_server, started) as view:
        yield view


@pytest.fixture
async def cluster_factory(
    cluster_kind: str, tmp_path: pathlib.Path
) -> AsyncIterator[clusters.Factory]:
    """Makes API servers of a test's own: ``await cluster_factory(store="sqlite")``."""
    made: list[tuple[clusters.Cluster, processes.Processes, pathlib.Path]] = []

    async def make(*, store: str = "memory") -> clusters.Cluster:
        folder = clusters.short_directory()
        started = processes.Processes(tmp_path / f"server-{len(made)}")
        server = servers.Server(started, folder / "c", kind=cluster_kind, store=store)
        await server.start()
        own = processes.Processes(tmp_path / f"logs-{len(made)}")
        view = await clusters.Cluster(server, own).__aenter__()
        made.append((view, started, folder))
        return view

    yield make
    for view, started, folder in reversed(made):
        await view.__aexit__()
        started.close()
        clusters.remove_tree(folder)


@pytest.fixture
def no_leaks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails the test when mounts, loop devices or processes are left once all has ended.

    Ask for it before the fixtures that start things, so that it looks after they are gone.
    """
    base = tmp_path_factory.getbasetemp()
    before = leaks.snapshot()
    yield
    left = leaks.snapshot().leaked_since(before)
    left += [line for line in [*leaks.mounts(), *leaks.loop_devices()] if str(base) in line]
    assert left == []
