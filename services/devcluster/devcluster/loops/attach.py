"""The attach/detach controller: one VolumeAttachment per (node, volume) that pods there use.

It only states what should be attached; a driver's attacher does it. Drivers whose CSIDriver
says ``attachRequired: false`` need none. A volume is given up only when the node no longer
reports it in use, and one for a single node goes to the next node only when the last let go.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devcluster import api as apis
from devcluster.loops import actions, facts, keyed, names, views
from devcluster.loops.actions import Action, Again, Create, Delete, Emit, Patch
from devcluster.loops.facts import Obj
from devcluster.node import names as agreed

OWN_NAME = re.compile("csi-[0-9a-f]{64}")
SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
DETACH_CHECK = 5.0  # seconds between looks at a volume that waits for another node to let go


@dataclass(frozen=True, slots=True)
class Seen:
    """A volume on a node: who wants it there, and what is attached where."""

    node_name: str
    volume: Obj | None
    attachment: Obj | None
    users: Sequence[Obj]  # pods on the node that use the volume and have not terminated
    elsewhere: Sequence[Obj]  # the volume's attachments to other nodes
    driver: Obj | None
    in_use: bool  # by the node's own report
    node: Obj | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """A volume that is attached to a node, by its name, and the pods there that want it."""

    volume: str
    users: Sequence[Obj] = ()


def attachment_name(volume: Obj, node_name: str) -> str:
    """The name every controller of Kubernetes expects for this attachment."""
    source = volume["spec"]["csi"]
    return agreed.attachment(source["volumeHandle"], source["driver"], node_name)


def unique_name(volume: Obj) -> str:
    """How a node's status names the volume."""
    source = volume["spec"]["csi"]
    return agreed.unique_volume(source["driver"], source["volumeHandle"])


def needs_attach(driver: Obj | None) -> bool:
    """A driver without a CSIDriver object is taken to need it."""
    return driver is None or driver["spec"].get("attachRequired") is not False


def decide(seen: Seen) -> list[Action]:
    """Attach what is wanted, detach what is not."""
    wanted = bool(seen.users) and seen.volume is not None and needs_attach(seen.driver)
    if not wanted:
        return _detach(seen)
    if seen.attachment is not None or seen.volume is None:
        return []
    if seen.elsewhere and not SHARED_MODES & set(seen.volume["spec"]["accessModes"]):
        node = seen.elsewhere[0]["spec"]["nodeName"]
        name = seen.volume["metadata"]["name"]
        text = f'Waiting for detach of volume "{name}": it is still attached to node "{node}"'
        events = [Emit(pod, "FailedAttachVolume", text, "Warning") for pod in seen.users]
        return [*events, Again(DETACH_CHECK)]
    return [Create(names.ATTACHMENTS, _attachment(seen.volume, seen.node_name))]


def _detach(seen: Seen) -> list[Action]:
    attachment = seen.attachment
    if attachment is None or facts.is_deleting(attachment) or seen.in_use:
        return []
    if not OWN_NAME.fullmatch(attachment["metadata"]["name"]):
        return []  # somebody else's: the controller knows only what it has made
    # The node must not start to use what is about to go, so it is told first.
    delete = Delete(names.ATTACHMENTS, facts.key(attachment), facts.uid(attachment))
    return [*_withdraw(seen), delete]


def _withdraw(seen: Seen) -> list[Action]:
    """Take the volume off the list of those that the node may use."""
    if seen.node is None or seen.volume is None:
        return []
    listed = _attached(seen.node)
    return _list(seen.node, [name for name in listed if name != unique_name(seen.volume)])


def _attachment(volume: Obj, node_name: str) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(volume, node_name)},
        "spec": {
            "attacher": volume["spec"]["csi"]["driver"],
            "nodeName": node_name,
            "source": {"persistentVolumeName": volume["metadata"]["name"]},
        },
    }


def decide_node(node: Obj, attached: Mapping[str, Attached]) -> list[Action]:
    """Keep ``status.volumesAttached``, which the node's agent reads, as the attachments say.

    ``attached`` is by the volumes' unique names. Pods hear of what is new.
    """
    new = [one for name, one in attached.items() if name not in _attached(node)]
    events = [
        Emit(pod, "SuccessfulAttachVolume", f'attached volume "{one.volume}" to the node')
        for one in new
        for pod in one.users
    ]
    return [*_list(node, list(attached)), *events]


def _attached(node: Obj) -> list[str]:
    """What the node may use, by its status."""
    return [entry["name"] for entry in (node.get("status") or {}).get("volumesAttached") or ()]


def _list(node: Obj, wanted: Sequence[str]) -> list[Action]:
    if sorted(_attached(node)) == sorted(wanted):
        return []
    entries = [{"name": name, "devicePath": ""} for name in sorted(wanted)]
    body: Obj = {"status": {"volumesAttached": entries or None}}
    return [Patch(names.NODES, facts.key(node), body, "status")]


class AttachDetach:
    """Feeds ``node/volume`` pairs, and ``/node`` for a node's status, through one queue."""

    def __init__(self, api: apis.Api, seen: views.Views) -> None:
        self._views = seen
        self.loop = keyed.KeyedLoop("attach", self._sync)
        self._performer = actions.Performer(api, "attachdetach-controller", self.loop.decided)
        seen.pods.listen(self._pod_changed)
        seen.claims.listen(self._claim_changed)
        seen.attachments.listen(self._attachment_changed)
        seen.nodes.listen(self._node_changed)
        for pod in seen.pods.all():
            self._add_pod(pod)
        for attachment in seen.attachments.all():
            self._attachment_changed(None, attachment)

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        for pod in (old, new):
            if pod:
                self._add_pod(pod)

    def _claim_changed(self, _old: Obj | None, new: Obj | None) -> None:
        if new and new["spec"].get("volumeName"):
            for pod in self._views.pods.by("claim", facts.key(new)):
                self._add_pod(pod)

    def _add_pod(self, pod: Obj) -> None:
        if not facts.node_name(pod):
            return
        for key in facts.claim_keys(pod):
            claim = self._views.claims.get(key)
            if claim and (name := claim["spec"].get("volumeName")):
                self.loop.add(f"{facts.node_name(pod)}/{name}")

    def _attachment_changed(self, old: Obj | None, new: Obj | None) -> None:
        spec = (new or old or {})["spec"]
        name = spec["source"].get("persistentVolumeName", "")
        self.loop.add(f"{spec['nodeName']}/{name}")
        self.loop.add(f"/{spec['nodeName']}")
        if new is None:  # whoever waits for this detach
            for claim in self._views.claims.by("volume", name):
                self._claim_changed(None, claim)

    def _node_changed(self, old: Obj | None, new: Obj | None) -> None:
        if old and new and _in_use(old) == _in_use(new):
            return
        name = (new or old or {})["metadata"]["name"]
        for attachment in self._views.attachments.by("node", name):
            self._attachment_changed(None, attachment)

    def _sync(self, key: str) -> float | None:
        node_name, _, name = key.partition("/")
        if node_name:
            return self._performer.perform(decide(self._observe(node_name, name)))
        node = self._views.nodes.get(name)
        if node is None:
            return None
        attached = {}
        for attachment in self._views.attachments.by("node", name):
            volume = self._volume_of(attachment)
            status = attachment.get("status") or {}
            if volume and status.get("attached") and not facts.is_deleting(attachment):
                own = facts.key(volume)
                attached[unique_name(volume)] = Attached(own, self._users(name, own))
        return self._performer.perform(decide_node(node, attached))

    def _volume_of(self, attachment: Obj) -> Obj | None:
        name = attachment["spec"]["source"].get("persistentVolumeName", "")
        volume = self._views.volumes.get(name)
        return volume if volume and "csi" in volume["spec"] else None

    def _observe(self, node_name: str, name: str) -> Seen:
        volume = self._views.volumes.get(name)
        if volume and "csi" not in volume["spec"]:
            volume = None
        attachments = self._views.attachments.by("volume", name)
        node = self._views.nodes.get(node_name)
        driver_name = volume["spec"]["csi"]["driver"] if volume else ""
        return Seen(
            node_name=node_name,
            volume=volume,
            attachment=next((a for a in attachments if a["spec"]["nodeName"] == node_name), None),
            users=self._users(node_name, name),
            elsewhere=[a for a in attachments if a["spec"]["nodeName"] != node_name],
            driver=self._views.csi_drivers.get(driver_name),
            in_use=bool(node and volume and unique_name(volume) in _in_use(node)),
            node=node,
        )

    def _users(self, node_name: str, name: str) -> list[Obj]:
        return [
            pod
            for claim in self._views.claims.by("volume", name)
            for pod in self._views.pods.by("claim", facts.key(claim))
            if facts.node_name(pod) == node_name and not facts.is_terminated(pod)
        ]


def _in_use(node: Obj) -> frozenset[str]:
    return frozenset((node.get("status") or {}).get("volumesInUse") or ())
