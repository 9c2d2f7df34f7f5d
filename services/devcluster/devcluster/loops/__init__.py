"""What a cluster does by itself beside its API server: binding, placing, attaching, collecting.

Each loop is a pure ``decide`` over plain data and a thin class that feeds it; all of them work
on the in-process API, from indexed views, through keyed queues. The rules and the strings are
those of kube-controller-manager and kube-scheduler; where both clusters differ, these are wrong.
"""

import asyncio

from devcluster import api as apis
from devcluster.loops import (
    attach,
    binder,
    ephemeral,
    garbage,
    nodes,
    protection,
    scheduler,
    views,
)


async def run(api: apis.Api, tasks: asyncio.TaskGroup) -> None:
    """Start all loops as tasks of the group; they work until the group is cancelled."""
    seen = views.Views(api)
    for part in (
        binder.Binder(api, seen),
        scheduler.Scheduler(api, seen),
        ephemeral.Ephemeral(api, seen),
        attach.AttachDetach(api, seen),
        protection.Protection(api, seen),
        nodes.NodeLifecycle(api, seen),
        garbage.Garbage(api),
    ):
        tasks.create_task(part.loop.run(), name=f"{part.loop.name} loop")
