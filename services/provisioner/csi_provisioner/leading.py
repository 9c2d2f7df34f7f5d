"""What the process does while it leads (or is alone): caches, the loops, and their orderly end.

Start: caches first, then the intents of an earlier process, then the loops, so that nothing is
decided on half a view. End: no new work, what is in flight finishes, the journal says what is
left open.
"""

import asyncio
import contextlib
import functools
from dataclasses import dataclass
from typing import Any

from bitts.core.ledger import Ledger
from bitts.core.metrics import Registry
from bitts.core.process import ExitError, Process
from bitts.core.reconcile import Controller
from bitts.core.workqueue import WorkQueue
from bitts.csi.driver import Driver
from bitts.kube import kinds
from bitts.kube.cache import Cache
from bitts.kube.client import Client
from bitts.kube.errors import ApiError
from bitts.kube.events import EventRecorder
from bitts.kube.objects import CSIStorageCapacity
from bitts.kube.reflector import Reflector
from bitts.rpc.codes import RpcError

from csi_provisioner import (
    capacity,
    decide,
    intents,
    measures,
    model,
    names,
    owners,
    settle,
    stopping,
)
from csi_provisioner.deletion import Deletion
from csi_provisioner.memory import Memory, VolumeMemory
from csi_provisioner.model import Policy
from csi_provisioner.observe import Caches, ClaimObserver, Places, VolumeObserver
from csi_provisioner.options import FATAL, CapacityOptions, Options
from csi_provisioner.provisioning import Provisioning
from csi_provisioner.publishing import Publisher
from csi_provisioner.wakes import Wakes

_FLUSH = 2.0  # seconds for events that are still unwritten at the end
_EXPECTED = (RpcError, ApiError, OSError)


@dataclass(frozen=True, slots=True)
class Ties:
    """What connects the process with its surroundings."""

    process: Process
    options: Options
    policy: Policy
    identity: str
    driver: Driver
    client: Client
    capacity_client: Client | None
    recorder: EventRecorder
    journal: intents.Journal
    registry: Registry


class Leading:
    """The loops of one process. Make it once, ``lead`` once."""

    def __init__(self, ties: Ties) -> None:
        self._ties = ties
        self.ledger = Ledger()
        sidecar = ties.options.sidecar
        queue = functools.partial(WorkQueue, start=sidecar.retry_start, maximum=sidecar.retry_max)
        self.claims = queue(names.CLAIMS_QUEUE)
        self.volumes = queue(names.VOLUMES_QUEUE)
        self.capacities = queue(names.CAPACITY_QUEUE) if ties.options.capacity else None
        self.caches = _caches(ties)
        self._capacity_objects: Cache[CSIStorageCapacity] = Cache()
        self._memory, self._volume_memory = Memory(), VolumeMemory()
        self._places = Places(ties.policy.driver_name, self.caches)
        self._observe_claim = ClaimObserver(
            ties.policy, self.caches, self._memory, self._places, self.claims.add
        )
        self._observe_volume = VolumeObserver(self.caches, self._volume_memory)
        self._measures = measures.Measures(ties.registry)
        measures.watch_journal(ties.registry, ties.journal)
        self._publisher: Publisher | None = None
        Wakes(
            policy=ties.policy,
            caches=self.caches,
            places=self._places,
            claims=self.claims,
            volumes=self.volumes,
            memory=self._memory,
            volume_memory=self._volume_memory,
        )
        for one in self.queues:
            ties.registry.queue(one)

    @property
    def queues(self) -> list[WorkQueue]:
        """All queues there are."""
        return [self.claims, self.volumes, *([self.capacities] if self.capacities else [])]

    def plan_of(self, key: str) -> list[decide.Step]:
        """What would happen to a claim or a volume if it were looked at now, for ``explain``."""
        plan: list[decide.Step] = []
        if (claim := self._observe_claim(key)) is not None:
            plan += decide.decide_claim(self._ties.policy, claim)
        if (volume := self._observe_volume(key)) is not None:
            plan += decide.decide_volume(self._ties.policy, volume)
        return plan

    async def lead(self) -> None:
        """Work until the process is asked to stop, then end in order."""
        process = self._ties.process
        try:
            await stopping.before(process, self._prepare())
        except stopping.StoppedError:
            return
        loops = [process.start(name, work) for name, work in self._loops()]
        process.started()
        process.log.info("Started", driver=self._ties.policy.driver_name)
        await process.stopping.wait()
        for queue in self.queues:
            queue.shut_down()
        await asyncio.wait(loops)
        with contextlib.suppress(*intents.FAULTS):
            await self._ties.journal.close()
        await self._ties.recorder.flush(_FLUSH)

    async def _prepare(self) -> None:
        await self._fill_caches()
        await self._prepare_capacity()
        for draft in await self._earlier_intents():
            self._adopt(draft)

    async def _fill_caches(self) -> None:
        client, caches, start = self._ties.client, self.caches, self._ties.process.start
        reflectors: list[tuple[Reflector[Any], Cache[Any]]] = [
            (Reflector(client, kind, cache), cache) for kind, cache in _kinds(caches)
        ]
        settings = self._ties.options.capacity
        if settings is not None:
            reflectors.append((self._capacity_reflector(settings), self._capacity_objects))
        for reflector, _ in reflectors:
            start(f"reflector {reflector.figures.resource}", reflector.run())
        for _, cache in reflectors:
            await cache.synced.wait()

    def _capacity_reflector(self, settings: CapacityOptions) -> Reflector[CSIStorageCapacity]:
        marks = capacity.labels(self._ties.policy.driver_name).items()
        assert self._ties.capacity_client is not None
        return Reflector(
            self._ties.capacity_client,
            kinds.CSI_STORAGE_CAPACITIES,
            self._capacity_objects,
            namespace=settings.namespace,
            label_selector=",".join(f"{name}={value}" for name, value in marks),
        )

    async def _prepare_capacity(self) -> None:
        settings, client = self._ties.options.capacity, self._ties.capacity_client
        if settings is None or client is None or self.capacities is None:
            return
        try:
            owner = await owners.find(
                client, settings.namespace, settings.pod_name, settings.owner_level
            )
        except owners.OwnerError as error:
            raise ExitError(FATAL, str(error)) from error
        self._publisher = publisher = Publisher(
            options=settings,
            timeout=self._ties.options.sidecar.timeout,
            driver=self._ties.driver,
            client=client,
            queue=self.capacities,
            ledger=self.ledger,
            objects=self._capacity_objects,
            classes=self.caches.classes,
            places=self._places,
            owner=owner,
        )
        measures.watch_capacity(
            self._ties.registry,
            goal=lambda: publisher.goal,
            current=lambda: publisher.current,
            obsolete=lambda: publisher.obsolete,
        )

    async def _earlier_intents(self) -> list[model.Draft]:
        """What an earlier process may have left unfinished; tried until it can be read."""
        pause = 0.5
        while True:
            try:
                return await self._ties.journal.open()
            except intents.FAULTS as error:
                self._ties.process.log.warning("The intent journal cannot be read yet", err=error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 10.0)

    def _adopt(self, draft: model.Draft) -> None:
        """Go on with what an earlier process may have asked for, unless it is stored."""
        stored = self.caches.volumes.get(draft.volume_name)
        owner = stored.spec.claim_ref if stored is not None else None
        is_stored = owner is not None and owner.uid == draft.claim.uid
        if is_stored or draft.provisioner != self._ties.policy.driver_name:
            self._ties.journal.clear(draft.claim.uid)
            return
        self._ties.process.log.info("Going on with an earlier intent", claim=draft.claim.key)
        self._memory.begin(draft)
        self.claims.add(draft.claim.key)

    def _loops(self) -> list[tuple[str, Any]]:
        ties, publisher = self._ties, self._publisher
        timeout = ties.options.sidecar.timeout
        provisioning = Provisioning(
            policy=ties.policy,
            identity=ties.identity,
            timeout=timeout,
            driver=ties.driver,
            client=ties.client,
            caches=self.caches,
            memory=self._memory,
            journal=ties.journal,
            recorder=ties.recorder,
            measures=self._measures,
            on_concluded=publisher.concluded if publisher else _ignore,
        )
        deletion = Deletion(
            timeout=timeout,
            driver=ties.driver,
            client=ties.client,
            caches=self.caches,
            memory=self._volume_memory,
            recorder=ties.recorder,
            measures=self._measures,
            on_deleted=publisher.deleted if publisher else _ignore,
        )
        claims: Controller[model.ClaimSeen, model.ClaimAction] = Controller(
            "claims",
            queue=self.claims,
            ledger=self.ledger,
            workers=ties.options.sidecar.worker_threads,
            observe=self._observe_claim,
            decide=functools.partial(decide.decide_claim, ties.policy),
            perform=provisioning,
            settle=functools.partial(settle.settle_claim, ties.policy),
            expected=_EXPECTED,
        )
        volumes: Controller[model.VolumeSeen, model.VolumeAction] = Controller(
            "volumes",
            queue=self.volumes,
            ledger=self.ledger,
            workers=ties.options.sidecar.worker_threads,
            observe=self._observe_volume,
            decide=functools.partial(decide.decide_volume, ties.policy),
            perform=deletion,
            settle=settle.settle_volume,
            expected=_EXPECTED,
        )
        loops = [("claims", claims.run()), ("volumes", volumes.run())]
        return [*loops, ("capacity", publisher.run())] if publisher else loops


def _ignore(_: object) -> None:
    """Nobody wants to know."""


def _caches(ties: Ties) -> Caches:
    with_places = ties.policy.topology or ties.options.capacity is not None
    is_attached = "PUBLISH_UNPUBLISH_VOLUME" in ties.policy.controller
    return Caches(
        claims=Cache(),
        volumes=Cache(),
        classes=Cache(),
        attachments=Cache() if is_attached else None,
        csi_nodes=Cache() if with_places else None,
        nodes=Cache() if with_places else None,
    )


def _kinds(caches: Caches) -> list[tuple[kinds.Kind[Any], Cache[Any]]]:
    every: list[tuple[kinds.Kind[Any], Cache[Any] | None]] = [
        (kinds.PERSISTENT_VOLUME_CLAIMS, caches.claims),
        (kinds.PERSISTENT_VOLUMES, caches.volumes),
        (kinds.STORAGE_CLASSES, caches.classes),
        (kinds.VOLUME_ATTACHMENTS, caches.attachments),
        (kinds.CSI_NODES, caches.csi_nodes),
        (kinds.NODES, caches.nodes),
    ]
    return [(kind, cache) for kind, cache in every if cache is not None]
