"""What a cluster of Kubernetes' programs answers about itself: what runs, and what came back."""

from collections.abc import Iterable, Iterator

import bitts
from bitts.rpc import introspection

from devcluster import introspect
from devcluster.kubernetes import nodes, programs


def sources(supervisor: programs.Supervisor, machines: nodes.Nodes) -> introspection.Sources:
    """Return what is told: decisions on programs and nodes, their processes, their restarts."""
    return introspection.Sources(
        program=introspect.PROGRAM,
        version=bitts.__version__,
        ledger=supervisor.noted,
        figures=lambda: [*_programs(supervisor), *_nodes(machines)],
        explain=lambda key: [*_program(supervisor, key), *_node(machines, key)],
    )


def runs(supervisor: programs.Supervisor, names: Iterable[str]) -> bool:
    """Whether all these programs run at the moment."""
    states = supervisor.states()
    return all(name in states and states[name].pid is not None for name in names)


def _programs(supervisor: programs.Supervisor) -> Iterator[introspection.Figure]:
    for name, state in supervisor.states().items():
        yield from _figures(f"program {name}", state.pid, state.restarts)


def _nodes(machines: nodes.Nodes) -> Iterator[introspection.Figure]:
    for name, started in machines.started.items():
        pid = started.pid if started.holder.returncode is None else None
        yield from _figures(f"node {name}", pid, machines.restarts.get(name, 0))


def _figures(area: str, pid: int | None, restarts: int) -> Iterator[introspection.Figure]:
    """A process that does not run has no number."""
    if pid is not None:
        yield introspection.Figure(area=area, name="pid", value=float(pid))
    yield introspection.Figure(area=area, name="restarts", value=float(restarts))


def _program(supervisor: programs.Supervisor, key: str) -> Iterator[introspection.Finding]:
    state = supervisor.states().get(key)
    if state is not None:
        now = f"process {state.pid}" if state.pid is not None else "not running"
        text = f"{now}, started again {state.restarts} times, says all in {state.log}"
        yield introspection.Finding(subject=f"program {key}", text=text, blocks=state.pid is None)


def _node(machines: nodes.Nodes, key: str) -> Iterator[introspection.Finding]:
    started = machines.started.get(key)
    if started is not None:
        again = machines.restarts.get(key, 0)
        text = (
            f"held by process {started.pid}, at {started.node.address}, started again {again} times"
        )
        yield introspection.Finding(subject=f"node {key}", text=text)
