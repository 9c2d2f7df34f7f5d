"""Publishes the driver's free capacity: the loop around ``capacity``'s decisions.

A figure is asked for at start, when a class or a place comes up, at every poll, and a moment
after volumes were made or deleted in its place, so that a burst asks once.
"""

import asyncio
import functools
from collections.abc import Iterable
from typing import Any

from bitts.core import logs
from bitts.core.ledger import Ledger
from bitts.core.reconcile import Controller
from bitts.core.workqueue import WorkQueue
from bitts.csi.driver import Driver
from bitts.kube import kinds, patches
from bitts.kube.cache import Cache
from bitts.kube.client import Client
from bitts.kube.errors import ApiError
from bitts.kube.objects import CSIStorageCapacity, OwnerReference, PersistentVolume, StorageClass
from bitts.rpc.codes import RpcError

from csi_provisioner import capacity, model, requests
from csi_provisioner.capacity import CapacitySeen, Item, Room
from csi_provisioner.model import Verdict
from csi_provisioner.observe import Places
from csi_provisioner.options import CapacityOptions
from csi_provisioner.topology import Term

BY_ITEM = "item"
_SETTLING = 0.5  # seconds from a change in a place to the question what is left there
_KIND = kinds.CSI_STORAGE_CAPACITIES


class Publisher:
    """Keeps the CSIStorageCapacity objects of one driver. ``timeout`` is for GetCapacity."""

    def __init__(
        self,
        *,
        options: CapacityOptions,
        timeout: float,
        driver: Driver,
        client: Client,
        queue: WorkQueue,
        ledger: Ledger,
        objects: Cache[CSIStorageCapacity],
        classes: Cache[StorageClass],
        places: Places,
        owner: OwnerReference | None,
    ) -> None:
        self._options = options
        self._timeout = timeout
        self._driver = driver
        self._client = client
        self._queue = queue
        self._objects = objects
        self._classes = classes
        self._places = places
        self._wanted: dict[str, Item] = {}
        self._is_refresh_due = False
        self._log = logs.get("capacity")
        self._controller: Controller[CapacitySeen, capacity.CapacityAction] = Controller(
            "capacity",
            queue=queue,
            ledger=ledger,
            workers=options.threads,
            observe=self._observe,
            decide=capacity.decide,
            perform=self._perform,
            settle=functools.partial(capacity.settle, owner),
            expected=(RpcError, ApiError),
        )
        objects.add_index(BY_ITEM, lambda found: [capacity.key_of(found)])

    @property
    def goal(self) -> int:
        """How many objects there should be."""
        return len(self._wanted)

    @property
    def current(self) -> int:
        """For how many of them there is one."""
        return sum(1 for key in self._wanted if self._objects.by_index(BY_ITEM, key))

    @property
    def obsolete(self) -> int:
        """How many objects there are beyond those."""
        return len(self._objects) - self.current

    async def run(self) -> None:
        """Publish until the queue is shut down or this is cancelled; caches have to be synced."""
        self._objects.subscribe(self._object_changed, own_writes=lambda old, new: None)
        self._classes.subscribe(self._class_changed)
        self._places.on_change(self._refresh_soon)
        self._refresh()
        for found in self._objects.items():
            self._queue.add(capacity.key_of(found))
        poll = asyncio.create_task(self._poll(), name="capacity poll")
        try:
            await self._controller.run()
        finally:
            poll.cancel()

    def concluded(self, concluded: model.Conclude) -> None:
        """An attempt to provision has reached the driver."""
        if concluded.draft is None or concluded.verdict is Verdict.FOUND:
            return
        terms = concluded.created.topology if concluded.created else ()
        self._changed_in(terms, concluded.draft.class_name)

    def deleted(self, volume: PersistentVolume) -> None:
        """A volume was deleted."""
        affinity = volume.spec.node_affinity
        required = affinity.required if affinity else None
        terms = [
            tuple(sorted((one.key, (one.values or ("",))[0]) for one in term.match_expressions))
            for term in (required.node_selector_terms or () if required else ())
        ]
        if terms:
            self._changed_in(terms)

    def _changed_in(self, terms: Iterable[Term], class_name: str = "") -> None:
        """Ask again: in these places, or (none) in all places of the class."""
        places = set(terms)
        for key, item in self._wanted.items():
            if item.segment in places or (not places and item.class_name == class_name):
                self._queue.add_after(key, _SETTLING)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_interval)
            for key in self._wanted:
                self._queue.add(key)

    def _object_changed(
        self, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None
    ) -> None:
        for found in (old, new):
            if found is not None:
                self._queue.add(capacity.key_of(found))

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """A class made anew may have other parameters, so that another pool has to be asked."""
        self._refresh_soon()
        if new is not None:
            self._changed_in((), new.name)

    def _refresh_soon(self) -> None:
        if not self._is_refresh_due:
            self._is_refresh_due = True
            asyncio.get_running_loop().call_soon(self._refresh)

    def _refresh(self) -> None:
        self._is_refresh_due = False
        before = self._wanted
        self._wanted = capacity.wanted(
            self._driver.info.name,
            self._classes.items(),
            self._places.segments(),
            immediate=self._options.immediate,
        )
        for key in before.keys() ^ self._wanted.keys():
            self._queue.add(key)

    def _observe(self, key: str) -> CapacitySeen | None:
        item = self._wanted.get(key)
        found = sorted(self._objects.by_index(BY_ITEM, key), key=lambda one: one.name)
        if item is None and not found:
            return None
        storage_class = self._classes.get(item.class_name) if item else None
        parameters = storage_class.parameters if storage_class else {}
        return CapacitySeen(item, parameters, tuple(found))

    async def _perform(self, action: capacity.CapacityAction, seen: CapacitySeen) -> object:
        match action:
            case capacity.AskRoom():
                return await self._ask(action)
            case capacity.WriteObject():
                await self._write(action)
            case capacity.Report():
                self._log.warning("Capacity is not up to date", err=action.reason, **_about(seen))
            case capacity.DropObject():
                await self._client.delete(
                    _KIND, action.name, self._options.namespace, uid=action.uid
                )
                for found in seen.objects:
                    if found.uid == action.uid:
                        self._objects.overlay_deleted(found)
        return None

    async def _ask(self, action: capacity.AskRoom) -> Room:
        request = requests.get_capacity(action.parameters, action.item.segment)
        reply = await self._driver.controller.get_capacity(request, timeout=self._timeout)
        largest = reply.maximum_volume_size
        return Room(reply.available_capacity, None if largest is None else largest.value)

    async def _write(self, action: capacity.WriteObject) -> None:
        namespace = self._options.namespace
        if action.name:
            change: dict[str, Any] = capacity.change(action)
            patch = patches.merge(change, resource_version=action.version)
            stored = await self._client.patch(_KIND, action.name, patch, namespace)
        else:
            body = capacity.body(self._driver.info.name, action)
            stored = await self._client.create(_KIND, body, namespace)
        self._objects.overlay(stored)


def _about(seen: CapacitySeen) -> dict[str, str]:
    """What a log record names: the figure, or the object that nobody needs."""
    if seen.item is None:
        return {"object": seen.objects[0].name}
    segment = ",".join(f"{key}={value}" for key, value in seen.item.segment)
    return {"storage_class": seen.item.class_name, "segment": segment}
