"""Where the intent journal is kept: in a Lease, in a file, or nowhere.

With leader election the next leader may run anywhere, so the entries go to a Lease beside the
election's (the same RBAC rule covers both: get, create, update). Without it the next process
finds the file beside the driver's socket, a folder that outlives the container.
"""

import asyncio
import base64
import contextlib
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

from bitts.core import logs
from bitts.kube import errors, kinds, leases
from bitts.kube.client import Client
from bitts.kube.objects import Lease

from csi_provisioner.intents import StoreUnusableError

ANNOTATION = "bitts.dev/intents"
FILE_NAME = "bitts-csi-provisioner.intents"

_LEASE_BYTES = 240 << 10  # the API server takes 256 KiB of annotations per object
_TIMEOUT = 10.0
_ATTEMPTS = 4
_LEVEL = 3  # of compression: entries are so alike that more effort gains little
_log = logs.get("intents")


class NoStore:
    """--intent-journal=off."""

    interval = 0.0
    limit = 1 << 62

    async def read(self) -> bytes:
        """Nothing is kept."""
        return b""

    async def write(self, data: bytes) -> None:
        """Nothing is kept."""


class FileStore:
    """A file that is replaced as a whole; after a crash it is the old or the new one."""

    interval = 0.05  # each commit hands the interpreter back and forth between two threads
    limit = 64 << 20

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    async def read(self) -> bytes:
        """The file's content, empty if there is none."""
        return await asyncio.to_thread(self._read)

    async def write(self, data: bytes) -> None:
        """Replace the file and wait until it is on disk."""
        try:
            await asyncio.to_thread(self._write, data)
        except OSError as error:
            raise StoreUnusableError(
                f"{self._path} cannot be written ({error}): make its folder writable, or choose"
                " another --intent-journal"
            ) from error

    def _read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def _write(self, data: bytes) -> None:
        beside = self._path.with_name(f".{self._path.name}.new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(descriptor)
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class LeaseStore:
    """An annotation on a Lease ``<driver>-intents``.

    ``holderIdentity`` fences: reading takes the Lease over, and from then on a write of an
    earlier leader fails, so that it begins nothing that its successor does not know of.
    """

    interval = 0.1
    limit = 1 << 20

    def __init__(self, client: Client, namespace: str, driver_name: str, identity: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = leases.sanitise(f"{driver_name}-intents")
        self._identity = identity
        self._version = ""
        self._exists = False

    async def read(self) -> bytes:
        """Take over the Lease, or make it, and return what the former holder left."""
        for _ in range(_ATTEMPTS):
            found = await self._get()
            text = found.metadata.annotations.get(ANNOTATION, "") if found else ""
            with contextlib.suppress(errors.Conflict):
                await self._put(text)
                return unpack(text)
        raise errors.Conflict(f"Lease {self._name} is written by others all the time", status=409)

    async def write(self, data: bytes) -> None:
        """Replace the annotation. Conflict means that another process has taken over."""
        text = await asyncio.to_thread(pack, data) if len(data) > _LEASE_BYTES else pack(data)
        if len(text) > _LEASE_BYTES:
            raise StoreUnusableError(f"{len(data)} bytes of intents do not fit into a Lease")
        try:
            await self._put(text)
        except (errors.Conflict, errors.NotFound):
            # Someone labelled or deleted it, or our own last write landed without an answer.
            found = await self._get()
            if found is not None and found.spec.holder_identity != self._identity:
                raise
            await self._put(text)

    async def _get(self) -> Lease | None:
        with self._explained():
            try:
                found = await self._client.get(
                    kinds.LEASES, self._name, self._namespace, priority="urgent", timeout=_TIMEOUT
                )
            except errors.NotFound:
                self._version, self._exists = "", False
                return None
            self._version, self._exists = found.metadata.resource_version, True
            return found

    async def _put(self, text: str) -> None:
        metadata: dict[str, Any] = {"name": self._name, "annotations": {ANNOTATION: text}}
        body = {"metadata": metadata, "spec": {"holderIdentity": self._identity}}
        with self._explained():
            if self._exists:
                metadata["resourceVersion"] = self._version
                stored = await self._client.replace(
                    kinds.LEASES, self._name, body, self._namespace,
                    priority="urgent", timeout=_TIMEOUT,
                )  # fmt: skip
            else:
                stored = await self._client.create(
                    kinds.LEASES, body, self._namespace, priority="urgent", timeout=_TIMEOUT
                )
        self._version, self._exists = stored.metadata.resource_version, True

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (errors.Forbidden, errors.Invalid, errors.BadRequest) as error:
            raise StoreUnusableError(
                f"Lease {self._namespace}/{self._name} cannot be used ({error}): grant get, create"
                " and update on leases, or choose another --intent-journal"
            ) from error


def pack(data: bytes) -> str:
    """The text of the annotation."""
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode()


def unpack(text: str) -> bytes:
    """What ``pack`` made text of; what is no such text is logged and lost."""
    try:
        return zlib.decompress(base64.b64decode(text)) if text else b""
    except (ValueError, zlib.error) as error:
        _log.error("The Lease's intents cannot be read and are lost", err=error)
        return b""
