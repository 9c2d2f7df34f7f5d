"""The effects on PersistentVolumes: finalizers, DeleteVolume, and the objects' end."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from bitts.core import logs
from bitts.csi.driver import Driver
from bitts.kube import errors, events, finalizers, kinds
from bitts.kube.client import Client
from bitts.kube.objects import PersistentVolume
from bitts.volumes.secrets import SecretRef

from csi_provisioner import credentials, model, names, requests
from csi_provisioner.measures import Measures
from csi_provisioner.memory import VolumeMemory
from csi_provisioner.model import VolumeSeen
from csi_provisioner.observe import Caches

_KIND = kinds.PERSISTENT_VOLUMES


class Deletion:
    """``perform`` of the PersistentVolumes' loop. ``timeout`` (seconds) is for DeleteVolume.

    ``on_deleted`` is told of each volume that is gone.
    """

    def __init__(
        self,
        *,
        timeout: float,
        driver: Driver,
        client: Client,
        caches: Caches,
        memory: VolumeMemory,
        recorder: events.EventRecorder,
        measures: Measures,
        on_deleted: Callable[[PersistentVolume], None] = lambda volume: None,
    ) -> None:
        self._timeout = timeout
        self._driver = driver
        self._client = client
        self._caches = caches
        self._memory = memory
        self._recorder = recorder
        self._measures = measures
        self._on_deleted = on_deleted
        self._log = logs.get("deletion")
        self._effects: dict[type, Callable[[Any, VolumeSeen], Awaitable[object]]] = {
            model.AddFinalizer: self._add_finalizer,
            model.RemoveFinalizer: self._remove_finalizer,
            model.EraseVolume: self._erase_volume,
            model.DeleteObject: self._delete_object,
            model.Report: self._report,
            model.CountDeleted: self._count_deleted,
        }

    def __call__(self, action: model.VolumeAction, seen: VolumeSeen) -> Awaitable[object]:
        """Perform one action."""
        return self._effects[type(action)](action, seen)

    async def _add_finalizer(self, action: model.AddFinalizer, seen: VolumeSeen) -> None:
        current = self._current(seen)
        changed = await finalizers.ensure(self._client, _KIND, current, names.FINALIZER)
        self._caches.volumes.overlay(changed)

    async def _remove_finalizer(self, action: model.RemoveFinalizer, seen: VolumeSeen) -> None:
        current = self._current(seen)
        left = await finalizers.remove(self._client, _KIND, current, names.FINALIZER)
        if left is None:
            self._caches.volumes.overlay_deleted(current)
        else:
            self._caches.volumes.overlay(left)

    async def _erase_volume(self, action: model.EraseVolume, seen: VolumeSeen) -> None:
        secrets = await self._secrets(action.secret)
        request = requests.delete_volume(action.volume_id, secrets)
        await self._driver.controller.delete_volume(request, timeout=self._timeout)
        self._memory.erase(seen.volume.uid)
        self._on_deleted(seen.volume)

    async def _delete_object(self, action: model.DeleteObject, seen: VolumeSeen) -> None:
        volume = seen.volume
        left = await self._client.delete(_KIND, volume.name, uid=volume.uid)
        if left is None:
            self._caches.volumes.overlay_deleted(volume)
        else:
            self._caches.volumes.overlay(left)

    async def _report(self, action: model.Report, seen: VolumeSeen) -> None:
        volume = seen.volume
        if action.is_failure:
            self._log.warning("Not deleted", volume=volume.name, err=action.reason)
            self._measures.not_deleted(volume.spec.storage_class_name)
            kind, reason = events.WARNING, names.VOLUME_FAILED_DELETE
            self._recorder.emit(_KIND.refer(volume), kind, reason, action.reason)
        else:
            self._memory.tell(volume.uid, action.reason)
            reason = names.VOLUME_DELETE
            self._recorder.emit(_KIND.refer(volume), events.NORMAL, reason, action.reason)

    async def _count_deleted(self, action: model.CountDeleted, seen: VolumeSeen) -> None:
        seconds = time.monotonic() - seen.now
        self._measures.deleted(seen.volume.spec.storage_class_name, seconds)
        self._log.info("Deleted", volume=seen.volume.name)

    async def _secrets(self, ref: SecretRef | None) -> dict[str, str]:
        """The Secret's content; without it if it is surely not to be had (as upstream)."""
        if ref is None:
            return {}
        try:
            return await credentials.read(self._client, ref)
        except (errors.NotFound, errors.Forbidden, errors.Invalid) as error:
            where = f"{ref.namespace}/{ref.name}"
            self._log.warning("Deleting without the secret", secret=where, err=error)
            return {}

    def _current(self, seen: VolumeSeen) -> PersistentVolume:
        """The object with our own last write, if it is still the same one."""
        known = self._caches.volumes.get(seen.volume.name)
        return known if known is not None and known.uid == seen.volume.uid else seen.volume
