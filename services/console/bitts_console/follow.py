"""Watches the objects of one namespace, so that the demo waits for events instead of asking."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from bitts.kube import cache as caches
from bitts.kube import client as clients
from bitts.kube import errors, kinds, objects, reflector

LIST_TIMEOUT = 10.0


class FollowError(Exception):
    """Something did not come about in time; the message says what and what the cluster tells."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Live copies of claims and pods in a namespace, and of volumes and attachments."""

    client: clients.Client
    namespace: str
    claims: caches.Cache[objects.PersistentVolumeClaim] = field(default_factory=caches.Cache)
    pods: caches.Cache[objects.Pod] = field(default_factory=caches.Cache)
    volumes: caches.Cache[objects.PersistentVolume] = field(default_factory=caches.Cache)
    attachments: caches.Cache[objects.VolumeAttachment] = field(default_factory=caches.Cache)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def own_volumes(self) -> list[objects.PersistentVolume]:
        """Return the volumes whose claim is, or was, in the namespace."""
        return [
            volume
            for volume in self.volumes.items()
            if volume.spec.claim_ref and volume.spec.claim_ref.namespace == self.namespace
        ]

    async def until(
        self,
        what: str,
        check: Callable[[], list[str]],
        *,
        timeout: float,
        notes: Callable[[], None],
    ) -> None:
        """Wait until ``check`` returns nothing more to wait for; ``notes`` runs at each change.

        Raises FollowError with what is still awaited and the warnings of the namespace.
        """
        pending = check()
        try:
            async with asyncio.timeout(timeout):
                while pending:
                    await self.changed.wait()
                    self.changed.clear()
                    notes()
                    pending = check()
        except TimeoutError:
            told = await warnings(self.client, self.namespace)
            awaited = ", ".join(pending)
            raise FollowError(f"{what}: after {timeout:g} s still {awaited}{told}") from None


@contextlib.asynccontextmanager
async def follow(client: clients.Client, namespace: str) -> AsyncIterator[Followed]:
    """Watch a namespace as long as the context lasts; every cache is filled at its start."""
    seen = Followed(client, namespace)
    reflectors = [
        reflector.Reflector(
            client, kinds.PERSISTENT_VOLUME_CLAIMS, seen.claims, namespace=namespace
        ).run(),
        reflector.Reflector(client, kinds.PODS, seen.pods, namespace=namespace).run(),
        reflector.Reflector(client, kinds.PERSISTENT_VOLUMES, seen.volumes).run(),
        reflector.Reflector(client, kinds.VOLUME_ATTACHMENTS, seen.attachments).run(),
    ]
    every = (seen.claims, seen.pods, seen.volumes, seen.attachments)
    for cache in every:
        cache.subscribe(lambda old, new: seen.changed.set())
    # No TaskGroup: reflectors never end by themselves, and a failure of the body is to be
    # raised as what it is.
    started = [asyncio.create_task(run, name=f"follow-{n}") for n, run in enumerate(reflectors)]
    try:
        async with asyncio.timeout(LIST_TIMEOUT):
            for cache in every:
                await cache.synced.wait()
        yield seen
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


async def warnings(client: clients.Client, namespace: str) -> str:
    """Return the last warnings in a namespace, as lines to be appended to a message."""
    try:
        page = await client.list_all(kinds.EVENTS.untyped(), namespace)
    except errors.ApiError as error:
        return f"\n(events cannot be read: {error})"
    lines = [
        f"\n  {event['regarding' if 'regarding' in event else 'involvedObject']['name']}: "
        f"{event.get('reason', '')}: {event.get('message') or event.get('note', '')}"
        for event in page.items
        if event.get("type") == "Warning"
    ]
    return "".join(lines[-8:]) or "\n  (there are no warnings in the namespace)"
