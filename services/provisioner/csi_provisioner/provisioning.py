"""The effects on claims: what each planned action does to the driver and the cluster.

No decision is taken here. Every coroutine either returns what settling needs or raises the
error that settling judges: RpcError from the driver, ApiError from the cluster, OSError from
the journal's file.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from bitts.core import logs
from bitts.csi.driver import Driver
from bitts.kube import errors, events, kinds
from bitts.kube.client import Client
from bitts.kube.objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttributesClass,
)
from bitts.rpc.codes import RpcError
from bitts.volumes.secrets import Use

from csi_provisioner import bodies, credentials, decide, model, names, requests
from csi_provisioner.intents import Journal
from csi_provisioner.measures import Measures
from csi_provisioner.memory import Memory
from csi_provisioner.model import ClaimRef, ClaimSeen, Created, Draft, Policy, Verdict
from csi_provisioner.observe import Caches

_DISCARD_ATTEMPTS = 5
_UNSELECT_ATTEMPTS = 4


class Provisioning:
    """``perform`` of the claims' loop. ``timeout`` (seconds) is for each call to the driver.

    ``on_concluded`` is told of each attempt that reached the driver.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        identity: str,
        timeout: float,
        driver: Driver,
        client: Client,
        caches: Caches,
        memory: Memory,
        journal: Journal,
        recorder: events.EventRecorder,
        measures: Measures,
        on_concluded: Callable[[model.Conclude], None] = lambda concluded: None,
    ) -> None:
        self._policy = policy
        self._identity = identity
        self._timeout = timeout
        self._driver = driver
        self._client = client
        self._caches = caches
        self._memory = memory
        self._journal = journal
        self._recorder = recorder
        self._measures = measures
        self._on_concluded = on_concluded
        self._multi_writer = "SINGLE_NODE_MULTI_WRITER" in policy.controller
        self._log = logs.get("provisioning")
        self._effects: dict[type, Callable[[Any, ClaimSeen], Awaitable[object]]] = {
            model.ConfirmClaim: self._confirm_claim,
            model.ConfirmClass: self._confirm_class,
            model.ReadAttributesClass: self._read_attributes_class,
            model.NoteIntent: self._note_intent,
            model.CreateVolume: self._create_volume,
            model.DiscardVolume: self._discard_volume,
            model.SaveVolume: self._save_volume,
            model.ReadVolume: self._read_volume,
            model.UnselectNode: self._unselect_node,
            model.Conclude: self._conclude,
        }

    def __call__(self, action: model.ClaimAction, seen: ClaimSeen) -> Awaitable[object]:
        """Perform one action."""
        return self._effects[type(action)](action, seen)

    async def _confirm_claim(
        self, action: model.ConfirmClaim, seen: ClaimSeen
    ) -> PersistentVolumeClaim:
        claim = action.claim
        return await self._client.get(kinds.PERSISTENT_VOLUME_CLAIMS, claim.name, claim.namespace)

    async def _confirm_class(self, action: model.ConfirmClass, seen: ClaimSeen) -> StorageClass:
        return await self._client.get(kinds.STORAGE_CLASSES, action.name)

    async def _read_attributes_class(
        self, action: model.ReadAttributesClass, seen: ClaimSeen
    ) -> VolumeAttributesClass:
        name = action.draft.attributes_class
        return await self._client.get(kinds.VOLUME_ATTRIBUTES_CLASSES, name)

    async def _note_intent(self, action: model.NoteIntent, seen: ClaimSeen) -> None:
        draft = action.draft
        if seen.claim is not None and seen.past.draft is None:
            text = f'External provisioner is provisioning volume for claim "{draft.claim.key}"'
            self._tell(seen, draft.claim, events.NORMAL, names.PROVISIONING, text)
        await self._journal.note(draft)

    async def _create_volume(self, action: model.CreateVolume, seen: ClaimSeen) -> Created | None:
        draft = action.draft
        secrets = await self._secrets(draft)
        request = requests.create_volume(draft, secrets, multi_writer=self._multi_writer)
        self._memory.begin(draft)
        reply = await self._driver.controller.create_volume(request, timeout=self._timeout)
        return requests.created(reply)

    async def _discard_volume(self, action: model.DiscardVolume, seen: ClaimSeen) -> None:
        request = requests.delete_volume(action.volume_id, await self._secrets(action.draft))
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._timeout
        for attempt in range(1, _DISCARD_ATTEMPTS + 1):
            left = max(0.001, ends - loop.time())
            try:
                await self._driver.controller.delete_volume(request, timeout=left)
            except RpcError:
                if attempt == _DISCARD_ATTEMPTS:
                    raise
            else:
                return

    async def _save_volume(self, action: model.SaveVolume, seen: ClaimSeen) -> PersistentVolume:
        draft, created = action.draft, action.created
        self._memory.answered(draft, created)
        body = bodies.persistent_volume(self._policy, self._identity, draft, created)
        stored = await self._client.create(kinds.PERSISTENT_VOLUMES, body)
        self._caches.volumes.overlay(stored)
        return stored

    async def _read_volume(self, action: model.ReadVolume, seen: ClaimSeen) -> PersistentVolume:
        return await self._client.get(kinds.PERSISTENT_VOLUMES, action.draft.volume_name)

    async def _unselect_node(self, action: model.UnselectNode, seen: ClaimSeen) -> None:
        """Take the annotation off if it still names the node; a newer choice stays.

        Upstream's RBAC rules allow to update claims, not to patch them.
        """
        claim, kind = action.claim, kinds.PERSISTENT_VOLUME_CLAIMS
        for attempt in range(1, _UNSELECT_ATTEMPTS + 1):
            try:
                live = await self._client.get(kind.untyped(), claim.name, claim.namespace)
            except errors.NotFound:
                return
            annotations = live["metadata"].get("annotations", {})
            if live["metadata"]["uid"] != claim.uid:
                return
            if annotations.get(names.SELECTED_NODE) != action.node:
                return
            del annotations[names.SELECTED_NODE]
            try:
                changed = await self._client.replace(kind, claim.name, live, claim.namespace)
            except errors.Conflict:
                if attempt == _UNSELECT_ATTEMPTS:
                    raise
            else:
                self._caches.claims.overlay(changed)
                return

    async def _conclude(self, action: model.Conclude, seen: ClaimSeen) -> None:
        self._remember(action, seen)
        self._count(action, seen)
        if action.verdict is Verdict.SUCCEEDED:
            volume = action.draft.volume_name if action.draft else ""
            self._log.info("Provisioned", claim=action.claim.key, volume=volume)
            kind: Literal["Normal", "Warning"] = events.NORMAL
            reason = names.PROVISIONING_SUCCEEDED
        elif action.verdict is Verdict.FOUND:
            self._log.info("Provisioned by an earlier process", claim=action.claim.key)
            return
        else:
            verdict = action.verdict.value
            self._log.warning(
                "Not provisioned", claim=action.claim.key, verdict=verdict, err=action.reason
            )
            kind, reason = events.WARNING, names.PROVISIONING_FAILED
        if seen.claim is not None:
            self._tell(seen, action.claim, kind, reason, action.reason)
        if action.draft is not None and action.verdict is not Verdict.UNREACHED:
            self._on_concluded(action)

    def _remember(self, action: model.Conclude, seen: ClaimSeen) -> None:
        uid = action.claim.uid
        match action.verdict:
            case Verdict.SUCCEEDED | Verdict.FOUND:
                self._memory.finish(uid)
            case Verdict.FINAL | Verdict.RESCHEDULED:
                self._memory.end(uid)
            case Verdict.INFEASIBLE:
                self._memory.hold(uid, time.monotonic() + decide.SLOW_RETRY, action.held_for)
            case Verdict.UNREACHED if action.awaits_nodes:
                self._memory.await_nodes(action.claim.key)
        if self._memory.past(uid).draft is None:
            self._journal.clear(uid)

    def _count(self, action: model.Conclude, seen: ClaimSeen) -> None:
        draft, claim = action.draft, seen.claim
        class_name = claim.storage_class_name if claim else draft.class_name if draft else ""
        if action.verdict is Verdict.SUCCEEDED:
            self._measures.provisioned(class_name, time.monotonic() - seen.now)
        elif action.verdict is not Verdict.FOUND:
            self._measures.not_provisioned(class_name, _source(claim))

    def _tell(
        self,
        seen: ClaimSeen,
        claim: ClaimRef,
        kind: Literal["Normal", "Warning"],
        reason: str,
        text: str,
    ) -> None:
        about = kinds.PERSISTENT_VOLUME_CLAIMS
        regarding = (
            about.refer(seen.claim)
            if seen.claim is not None
            else about.reference(claim.name, claim.namespace, claim.uid)
        )
        summary_on = kinds.STORAGE_CLASSES.refer(seen.storage_class) if seen.storage_class else None
        self._recorder.emit(regarding, kind, reason, text, summary_on=summary_on)

    async def _secrets(self, draft: Draft) -> dict[str, str]:
        ref = draft.secrets.get(Use.PROVISION.name)
        return {} if ref is None else await credentials.read(self._client, ref)


def _source(claim: PersistentVolumeClaim | None) -> str:
    """The label ``source`` of the metrics."""
    source = claim.spec.data_source if claim else None
    return source.kind if source else ""
