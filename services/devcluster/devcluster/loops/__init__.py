"""What a cluster does by itself beside its API server: binding, placing, attaching, collecting.

Each loop is a pure ``decide`` over plain data and a thin class that feeds it; all of them work
on the in-process API, from indexed views, through keyed queues. The rules and the strings are
those of kube-controller-manager and kube-scheduler; where both clusters differ, these are wrong.
"""

import asyncio

from bitts.core import ledger

from devcluster import api as apis
from devcluster.loops import (
    accounts,
    attach,
    binder,
    ephemeral,
    garbage,
    keyed,
    nodes,
    protection,
    scheduler,
    views,
)


def start(
    api: apis.Api, tasks: asyncio.TaskGroup, seen_in: ledger.Ledger, certificate: str = ""
) -> list[keyed.KeyedLoop]:
    """Start all loops as tasks of the group; they work until the group is cancelled.

    What they do is noted in one ledger. ``certificate`` (PEM) is whom pods are to trust.
    """
    seen = views.Views(api)
    parts = (
        accounts.Accounts(api, certificate),
        binder.Binder(api, seen),
        scheduler.Scheduler(api, seen),
        ephemeral.Ephemeral(api, seen),
        attach.AttachDetach(api, seen),
        protection.Protection(api, seen),
        nodes.NodeLifecycle(api, seen),
        garbage.Garbage(api),
    )
    loops = [part.loop for part in parts]
    for loop in loops:
        loop.ledger = seen_in
        tasks.create_task(loop.run(), name=f"{loop.name} loop")
    return loops
