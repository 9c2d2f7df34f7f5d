"""Claims and volumes: every write that binds, releases and deletes them, in its order.

The expectations are what Kubernetes' own controllers do; the embedded cluster has to do the same.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import manifests, provisioning, servers, traces
from support import tracefragments as fragments
from support.cluster import Cluster

VOLUMES = provisioning.VOLUMES
Obj = dict[str, Any]


class Hands:
    """What a user does to one claim, ``data``, and to a volume that he has made himself."""

    def __init__(self, cluster: Cluster, trace: traces.Recording) -> None:
        self.cluster = cluster
        self.trace = trace
        self.claim = f"/api/v1/namespaces/{cluster.namespace}/persistentvolumeclaims/data"
        self.name = f"{cluster.namespace}-volume"
        self.volume = f"{VOLUMES}/{self.name}"

    async def make_volume(self, **fields: Any) -> None:
        given = {"storageClassName": "", "persistentVolumeReclaimPolicy": "Retain", **fields}
        body = manifests.volume(self.name, size="1Mi", **given)
        body["spec"]["csi"] = {"driver": self.cluster.driver_name, "volumeHandle": self.name}
        await self.cluster.request("POST", VOLUMES, manifests.fresh(body))

    async def make_claim(self, **fields: Any) -> None:
        body = manifests.claim("data", size="1Mi", **{"storageClassName": "", **fields})
        body["metadata"]["namespace"] = self.cluster.namespace
        await self.cluster.request("POST", self.claim.removesuffix("/data"), manifests.fresh(body))

    async def phase(self, path: str, wanted: str) -> None:
        def reached(found: Obj) -> bool:
            return bool((found.get("status") or {}).get("phase") == wanted)

        await self.cluster.wait_for(path, reached, f"{path} is {wanted}")

    async def delete(self, path: str) -> None:
        await self.cluster.request("DELETE", path)

    async def gone(self, path: str) -> None:
        await self.cluster.wait_for(path, lambda it: it is None, f"{path} gone")


@pytest.fixture
async def hands(cluster: Cluster) -> AsyncIterator[Hands]:
    async with traces.recording(cluster) as made:
        yield Hands(cluster, made)
    with contextlib.suppress(servers.RefusedError):  # it has gone
        await cluster.request("DELETE", f"{VOLUMES}/{cluster.namespace}-volume")


NEW_VOLUME = """
volume VOLUME by bitts-tests
    new
    phase=Pending
    finalizer kubernetes.io/pv-protection
volume VOLUME by kube-controller-manager/status
    phase=Available
"""
NEW_CLAIM = """
claim data by bitts-tests
    new
    phase=Pending
    finalizer kubernetes.io/pvc-protection
"""
CHOSEN = """
volume VOLUME by kube-controller-manager
    claimRef.apiVersion=v1
    claimRef.kind=PersistentVolumeClaim
    claimRef.namespace=NAMESPACE
    claimRef.name=data
    claimRef.uid=set
    claimRef.resourceVersion=set
    pv.kubernetes.io/bound-by-controller=yes
volume VOLUME by kube-controller-manager/status
    phase=Bound
"""


async def test_a_volume_reserved_for_a_claim_is_bound_to_it_and_kept(hands: Hands) -> None:
    await hands.make_volume(claimRef={"namespace": hands.cluster.namespace, "name": "data"})
    await hands.phase(hands.volume, "Available")
    await hands.make_claim()
    await hands.phase(hands.claim, "Bound")
    await hands.delete(hands.claim)
    await hands.phase(hands.volume, "Released")
    await hands.delete(hands.volume)
    await hands.trace.check(
        """
        volume VOLUME by bitts-tests
            new
            phase=Pending
            claimRef.namespace=NAMESPACE
            claimRef.name=data
            finalizer kubernetes.io/pv-protection
        volume VOLUME by kube-controller-manager/status
            phase=Available
        """,
        NEW_CLAIM,
        """
        volume VOLUME by kube-controller-manager
            claimRef.apiVersion=v1
            claimRef.kind=PersistentVolumeClaim
            claimRef.uid=set
            claimRef.resourceVersion=set
        volume VOLUME by kube-controller-manager/status
            phase=Bound
        """,
        fragments.bound(),
        fragments.claim_deleted(),
        """
        volume VOLUME
            deletion asked for
        volume VOLUME
            gone
        """,
    )


async def test_a_bound_volume_is_protected_until_its_claim_has_gone(hands: Hands) -> None:
    await hands.make_volume()
    await hands.phase(hands.volume, "Available")
    await hands.make_claim()
    await hands.phase(hands.claim, "Bound")
    await hands.delete(hands.volume)
    await hands.delete(hands.claim)
    await hands.trace.check(
        NEW_VOLUME,
        NEW_CLAIM,
        CHOSEN,
        fragments.bound(),
        """
        volume VOLUME
            deletion asked for
        """,
        fragments.claim_deleted(),
        """
        volume VOLUME
            gone
        """,
    )


async def test_a_claim_waits_for_the_volume_that_it_names(hands: Hands) -> None:
    await hands.make_claim(volumeName=hands.name)
    await hands.make_volume()
    await hands.phase(hands.claim, "Bound")
    await hands.delete(hands.claim)
    await hands.gone(hands.claim)
    await hands.trace.check(
        """
        claim data by bitts-tests
            new
            phase=Pending
            volumeName=VOLUME
            finalizer kubernetes.io/pvc-protection
        """,
        NEW_VOLUME,
        CHOSEN,
        fragments.bound(named=True),
        fragments.claim_deleted(),
    )


async def test_a_claim_whose_volume_was_taken_away_is_lost(hands: Hands) -> None:
    await hands.make_volume()
    await hands.phase(hands.volume, "Available")
    await hands.make_claim()
    await hands.phase(hands.claim, "Bound")
    await hands.delete(hands.volume)
    body = {"metadata": {"finalizers": None}}
    kind = "application/merge-patch+json"
    await hands.cluster.request("PATCH", hands.volume, body, content_type=kind)
    await hands.phase(hands.claim, "Lost")
    await hands.delete(hands.claim)
    await hands.trace.check(
        NEW_VOLUME,
        NEW_CLAIM,
        CHOSEN,
        fragments.bound(),
        """
        volume VOLUME
            deletion asked for
        volume VOLUME
            gone
        claim data by kube-controller-manager/status
            phase=Lost
            -accessModes
            -capacity
        claim data
            deletion asked for
        claim data
            gone
        """,
    )
    await hands.trace.told("data", "persistentvolume-controller Warning ClaimLost")


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_a_provisioned_volume_goes_by_its_reclaim_policy(hands: Hands, policy: str) -> None:
    async with provisioning.stand(hands.cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class(reclaimPolicy=policy)
        hands.trace.names[name] = "CLASS"
        await stand.claim("data", name)
        await stand.bound("data")
        await hands.trace.told(
            "data",
            "persistentvolume-controller Normal ExternalProvisioning",
            "csi-provisioner Normal ProvisioningSucceeded",
        )
        await stand.delete_claim("data")
        await hands.trace.check(
            fragments.claimed(),
            fragments.provisioned(retained=policy == "Retain"),
            fragments.claim_deleted(),
            fragments.VOLUME_DELETED if policy == "Delete" else "",
        )
        called = [one.method for one in stand.csi.calls if one.method.endswith("Volume")]
        assert called == ["CreateVolume", *(["DeleteVolume"] if policy == "Delete" else [])]
