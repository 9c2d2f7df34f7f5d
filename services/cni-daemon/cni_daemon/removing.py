"""DEL of an attachment that the journal does not know (any more).

The reference plugins have made it, or the journal was lost. A pod must be able to end whatever
its configuration says, so what the plugin would refuse to attach is removed all the same: its
link and its addresses. The node's own links are never touched, whatever CNI_NETNS says.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bitts.cni.documents import DocumentError
from bitts.core import logs
from bitts.net import namespaces

from cni_daemon import chain, executor, inherited, relaying, scene
from cni_daemon.chain import Stage
from cni_daemon.executor import Executor, OperationError
from cni_daemon.ipam.asking import Asking
from cni_daemon.model import Draws, Observed
from cni_daemon.names import CHAIN_TYPE
from cni_daemon.operations import Operation, RemoveElements
from cni_daemon.records import Entry
from cni_daemon.requests import Request
from cni_daemon.scene import Scene
from cni_daemon.traffic import RemoveSource


def remove(
    request: Request, draws: Draws, acting: Executor, entries: Callable[[], Sequence[Entry]]
) -> None:
    """Carry out the DEL, but for what belongs to one of the journal's ``entries`` by now. Blocks.

    Raises CniError, NamespaceError where it cannot be told whether the container is still
    there, and OperationError.
    """
    problems: list[OperationError] = []
    for stage in reversed(chain.stages_to_remove(request, draws)):
        with contextlib.ExitStack() as stack:
            where = _entered(request, stack)
            observed = Observed(settled=acting.settled)
            undo = stage.plugin.remove(stage.options, stage.call, observed)
            if undo:
                undo = unclaimed(undo, entries())
            failed = acting.undo(undo, where)
        if request.plugin != CHAIN_TYPE:  # which the reference plugins do not know
            inherited.remove(stage.plugin.type, stage.call)
        if stage.ipam and not executor.is_link_left(failed):
            failed += acting.undo(_giving_back(stage, request), Scene())
        problems += failed
    if problems:
        raise problems[0]


def unclaimed(undo: Iterable[Operation], entries: Iterable[Entry]) -> tuple[Operation, ...]:
    """Leave out what another container has by now (pure).

    A DEL that comes late names an address, or a port, that may have been given anew.
    """
    entries = tuple(entries)
    owned = relaying.owned(entries)
    sources = {o for each in entries for o in each.undo if isinstance(o, RemoveSource)}
    found: list[Operation] = []
    for each in undo:
        if isinstance(each, RemoveElements):
            kept = tuple(e for e in each.elements if (each.container, e.key) not in owned)
            each = replace(each, elements=kept)
        if not (isinstance(each, RemoveSource) and replace(each, may_fail=False) in sources):
            found.append(each)
    return tuple(found)


def _entered(request: Request, stack: contextlib.ExitStack) -> Scene:
    """Return where to remove: without a container when it is gone, or is the node itself."""
    invocation = request.invocation
    try:
        where = stack.enter_context(scene.opened(invocation.netns))
    except scene.GONE:
        return Scene()
    assert where.descriptor is not None
    if namespaces.is_own(where.descriptor) and not invocation.allows_own_netns:
        logs.get("removing").warning(
            "CNI_NETNS is the node's own: no link is removed",
            container=invocation.container_id,
            netns=invocation.netns,
        )
        return Scene()
    return where


def _giving_back(stage: Stage, request: Request) -> tuple[Operation, ...]:
    try:
        return Asking(stage.ipam, stage.call, request.environment).undo()
    except DocumentError as error:  # nobody can have got an address by it
        logs.get("removing").warning("No address can be given back", ipam=stage.ipam, err=error)
        return ()
