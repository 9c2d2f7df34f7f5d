"""What was written to a cluster's objects, in order: the same words for every kind of cluster.

A recording follows objects by watch. Each revision of one becomes a step: who wrote it, and
which of the facts that controllers agree on (annotations, finalizers, phases, conditions,
bonds) it changed. Revisions come from one counter, so steps of several objects have an order.

Who wrote is told by managedFields on Kubernetes and by ``/-/writes`` on the embedded cluster.
Neither knows who took something away; there ``who`` is empty.
"""

import asyncio
import contextlib
import dataclasses
import difflib
import json
import textwrap
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from support import servers, tracefacts, waiting
from support.cluster import Cluster
from support.tracefacts import Path

Obj = dict[str, Any]

AGENTS = {"devcluster-node": "kubelet"}
"""Programs of the embedded cluster by the name of those they stand for."""

ANYWHERE = "~"
"""Marks a step in ``parse`` whose place among the others may vary."""

SUBJECTS = {
    "PersistentVolumeClaim": "claim",
    "PersistentVolume": "volume",
    "Pod": "pod",
    "VolumeAttachment": "attachment",
    "Node": "node",
    "CSINode": "drivers of",
}


FOLLOWED = (
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/storage.k8s.io/v1/csinodes",
    "/api/v1/nodes",
)
"""Paths of what is not in the test's namespace."""


@dataclass(frozen=True, slots=True)
class Step:
    """One write: to which object, by whom (empty if not known), and what it changed."""

    subject: str
    who: str
    what: tuple[str, ...]
    is_anywhere: bool = False

    def __str__(self) -> str:
        """Write the step as ``parse`` reads it."""
        head = f"{self.subject} by {self.who}" if self.who else self.subject
        return "\n".join([head, *(f"    {line}" for line in self.what)])


def parse(text: str) -> list[Step]:
    """Read steps: a line ``subject by who``, and below it, indented, what was changed. Pure.

    A ``~`` before the subject lets the step happen at any time; ``*`` at the end of a line stands
    for whatever may come.
    """
    steps: list[Step] = []
    for line in filter(str.strip, textwrap.dedent(text).splitlines()):
        if line.startswith(" "):
            last = steps.pop()
            steps.append(dataclasses.replace(last, what=(*last.what, line.strip())))
        else:
            subject, _, who = line.removeprefix(ANYWHERE).partition(" by ")
            steps.append(Step(subject, who, (), line.startswith(ANYWHERE)))
    return [dataclasses.replace(step, what=tuple(sorted(step.what))) for step in steps]


def owners(obj: Obj, paths: Iterable[Path]) -> set[str]:
    """Return who last set fields, by the object's managedFields; as ``manager/subresource``. Pure.

    Fields that nobody owns (defaults, and what a binding writes) have no part in it.
    """
    entries = sorted(obj["metadata"].get("managedFields") or (), key=lambda one: one["time"])
    found = set()
    for path in paths:
        holders = [one for one in entries if _holds(one["fieldsV1"], path)]
        if holders:
            found.add(agent(holders[-1]["manager"], holders[-1].get("subresource", "")))
    return found


def _holds(tree: Mapping[str, Any], path: Path) -> bool:
    for element in path:
        if element not in tree:
            return False
        tree = tree[element]
        if not tree:
            return True
    return True


def agent(manager: str, subresource: str) -> str:
    """Return a writer by the name that it has on every kind of cluster."""
    name = AGENTS.get(manager, manager)
    return f"{name}/{subresource}" if subresource else name


class Recording:
    """What happened to the objects of one test since its start; make it with ``recording``."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = {cluster.driver_name: "DRIVER", cluster.namespace: "NAMESPACE"}
        """Texts that differ from run to run, and what stands for them."""
        self._seen: dict[tuple[str, str], Obj] = {}
        self._steps: list[tuple[int, str, list[str], set[str]]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Record from now on until the end of the context."""
        space = f"/api/v1/namespaces/{self.cluster.namespace}"
        own = (f"{space}/persistentvolumeclaims", f"{space}/pods")
        async with self.cluster.server.session() as session:
            queries = [await self._begin(session, path) for path in (*own, *FOLLOWED)]
            following = [
                asyncio.create_task(self._follow(session, query), name=query) for query in queries
            ]
            try:
                yield
            finally:
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)
        for task in following:
            assert task.cancelled(), f"the recording ended too early: {task}"

    async def _begin(self, session: aiohttp.ClientSession, path: str) -> str:
        """Note how a resource's objects are now; returns where to watch from."""
        listed = await servers.call(session, "GET", path)
        kind = listed["kind"].removesuffix("List")
        for item in listed["items"]:
            self._seen[kind, item["metadata"]["name"]] = {**item, "kind": kind}
        return f"{path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"

    async def _follow(self, session: aiohttp.ClientSession, query: str) -> None:
        """Note every change until cancelled."""
        async with session.get(query, timeout=None) as stream:
            while line := await stream.content.readline():
                event = json.loads(line)
                self._note(event["type"], event["object"])

    def _note(self, event: str, obj: Obj) -> None:
        key = obj["kind"], obj["metadata"]["name"]
        if not self._is_ours(obj):
            return
        old = self._seen.get(key)
        subject = f"{SUBJECTS[key[0]]} {key[1]}"
        if key[0] == "PersistentVolume" and obj["metadata"]["uid"] not in self.names:
            self.names.setdefault(key[1], "VOLUME")
        if key[0] == "VolumeAttachment":
            self.names[key[1]] = "ATTACHMENT"
        revision = int(obj["metadata"]["resourceVersion"])
        words, paths = tracefacts.difference(old, obj)
        if event == "DELETED":
            del self._seen[key]
            words.append("gone")
        else:
            self._seen[key] = obj
        who = owners(obj, paths)
        if event == "ADDED":
            words.append("new")
            who = owners(obj, [()])
        if obj["kind"] in ("Node", "CSINode"):
            words = [one for one in words if self.cluster.driver_name in one]
        if words:
            self._steps.append((revision, subject, words, who))

    def _is_ours(self, obj: Obj) -> bool:
        match obj["kind"]:
            case "PersistentVolume":
                ref = obj["spec"].get("claimRef") or {}
                driver = (obj["spec"].get("csi") or {}).get("driver")
                ours = self.cluster.namespace, self.cluster.driver_name
                return bool(ref.get("namespace") == ours[0] or driver == ours[1])
            case "VolumeAttachment":
                return bool(obj["spec"]["attacher"] == self.cluster.driver_name)
        return True

    async def steps(self) -> list[Step]:
        """Return what happened, in the order of writing."""
        told: dict[int, str] = {}
        if self.cluster.server.kind == "embedded":
            writes = await self.cluster.request("GET", "/-/writes")
            told = {number: agent(manager, part) for number, manager, part in writes}
        found = []
        for number, subject, words, who in sorted(self._steps, key=lambda one: one[0]):
            only = told.get(number, "") if told else " and ".join(sorted(who))
            what = tuple(sorted(self._plain(word) for word in words))
            found.append(Step(self._plain(subject), only, what))
        return found

    def _plain(self, text: str) -> str:
        for name in sorted(self.names, key=len, reverse=True):
            text = text.replace(name, self.names[name])
        return text

    async def events(self, name: str) -> set[str]:
        """Return what was told about an object: component, type and reason."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/events"
        found = (await self.cluster.request("GET", path))["items"]
        return {
            " ".join((_component(one, self.cluster.driver_name), one["type"], one["reason"]))
            for one in found
            if one["involvedObject"]["name"] == name
        }

    async def told(self, name: str, *wanted: str, timeout: float = 15.0) -> None:
        """Wait until all these (see ``events``) were told about an object."""

        async def all_told() -> bool:
            return set(wanted) <= await self.events(name)

        what = f"events {', '.join(wanted)} about {name}"
        await waiting.until(all_told, what, timeout)

    async def check(self, *expected: str, timeout: float = 30.0) -> None:
        """Wait until exactly these steps were taken (see ``parse``); fail with both beside."""
        wanted = [step for part in expected for step in parse(part)]

        async def as_wanted() -> bool:
            return agree(wanted, await self.steps())

        try:
            await waiting.until(as_wanted, "the steps", timeout)
        except waiting.DeadlineError:
            seen = await self.steps()
            raise AssertionError("\n".join(compare(wanted, seen))) from None


def _component(event: Obj, driver: str) -> str:
    name = (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
    return "csi-provisioner" if name.startswith(f"{driver}_") else str(name)


def agree(wanted: Sequence[Step], seen: Sequence[Step]) -> bool:
    """Whether the same was done in the same order; who is not known may be anybody. Pure."""
    rest = list(seen)
    for step in (one for one in wanted if one.is_anywhere):
        found = next((one for one in rest if _same(step, one)), None)
        if found is None:
            return False
        rest.remove(found)
    ordered = [one for one in wanted if not one.is_anywhere]
    return len(ordered) == len(rest) and all(map(_same, ordered, rest))


def _same(wanted: Step, seen: Step) -> bool:
    is_known = "" not in (wanted.who, seen.who)
    return (
        wanted.subject == seen.subject
        and len(wanted.what) == len(seen.what)
        and all(map(_fits, wanted.what, seen.what))
        and (not is_known or wanted.who == seen.who)
    )


def _fits(wanted: str, seen: str) -> bool:
    """Whether a line is as expected; one that ends in ``*`` expects only how it begins."""
    return seen.startswith(wanted[:-1]) if wanted.endswith("*") else seen == wanted


def compare(wanted: Sequence[Step], seen: Sequence[Step]) -> list[str]:
    """Return the difference as text. Pure."""
    left, right = ("\n".join(map(str, steps)).splitlines() for steps in (wanted, seen))
    return ["steps differ (- expected, + seen)", *difflib.ndiff(left, right)]


@contextlib.asynccontextmanager
async def recording(cluster: Cluster) -> AsyncIterator[Recording]:
    """Record a test's claims, pods, volumes and attachments, and what nodes say of the latter."""
    made = Recording(cluster)
    async with made.running():
        yield made
