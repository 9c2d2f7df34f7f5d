"""What a cluster answers about itself; the embedded one: its loops' decisions, its objects.

The socket stands in the cluster's folder and needs no token: who may enter the folder may ask.
"""

import collections.abc
import contextlib
import pathlib
from typing import TYPE_CHECKING

import bitts
from bitts.core import ledger
from bitts.rpc import introspection

from devcluster import files

if TYPE_CHECKING:
    from devcluster.loops import keyed
    from devcluster.store import Store

PROGRAM = "devcluster"
_STOP = 0.3
"""Seconds that open questions get at the end."""


def sources(
    store: "Store", noted: ledger.Ledger, loops: "collections.abc.Sequence[keyed.KeyedLoop]"
) -> introspection.Sources:
    """Return what the embedded cluster tells."""
    return introspection.Sources(
        program=PROGRAM,
        version=bitts.__version__,
        ledger=noted,
        figures=lambda: [*_store(store), *_queues(loops)],
    )


@contextlib.asynccontextmanager
async def serve(
    directory: pathlib.Path,
    told: introspection.Sources,
    is_serving: collections.abc.Callable[[], bool] = lambda: True,
) -> collections.abc.AsyncIterator[None]:
    """Answer on a socket in the cluster's folder; without one where none can be made."""
    path = _socket(directory)
    server = await introspection.serve(told, path, {"": is_serving}, is_required=False)
    try:
        yield
    finally:
        await server.stop(_STOP)


def _socket(directory: pathlib.Path) -> str:
    return str(directory.absolute() / files.INTROSPECTION)


def _store(store: "Store") -> collections.abc.Iterator[introspection.Figure]:
    yield introspection.Figure(area="store", name="revision", value=float(store.revision))
    for collection in store.collections():
        count = float(len(collection.objects))
        yield introspection.Figure(area="objects", name=collection.name, value=count)


def _queues(
    loops: "collections.abc.Iterable[keyed.KeyedLoop]",
) -> collections.abc.Iterator[introspection.Figure]:
    for loop in loops:
        area = f"loop {loop.name}"
        yield introspection.Figure(area=area, name="ready", value=float(loop.ready))
        yield introspection.Figure(area=area, name="delayed", value=float(loop.delayed))
