"""Whatever a driver or a user gets wrong: a clear word, no hot loop, and nothing lost."""

import pytest
from bitts.rpc.codes import Code
from support import cluster as clusters
from support import provisioning
from support.proxy import Fault, Loss, When

OPEN = [Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED]
FINAL = [Code.UNKNOWN, Code.ALREADY_EXISTS, Code.INTERNAL, Code.RESOURCE_EXHAUSTED]


async def test_after_every_code_the_volume_comes_about_once(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class()
        for code in [*OPEN, *FINAL]:
            stand.csi.inject(Fault("CreateVolume", when=When.AFTER, code=code))
            claim = code.name.lower().replace("_", "-")
            uid = await stand.claim(claim, name)
            await stand.event(claim, f"rpc error: code = {code.go_name} desc = injected")
            await stand.bound(claim)
            assert stand.csi.count("CreateVolume", volume=f"pvc-{uid}") == 2
        await stand.quiet(len(OPEN) + len(FINAL))


async def test_lost_answers_and_late_ones(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner("--timeout=500ms")
        name = await stand.make_class()
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, lost=Loss.CALL))
        await stand.claim("lost", name)
        await stand.bound("lost")
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, hangs=True))
        await stand.claim("late", name)
        await stand.event("late", "code = DeadlineExceeded")
        await stand.bound("late")
        await stand.quiet(2)
        stand.csi.inject(Fault("DeleteVolume", when=When.AFTER, lost=Loss.CALL))
        await stand.delete_claim("lost")
        await stand.quiet(1)


async def test_a_deleted_claim_s_volume_is_finished_and_deleted(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner("--retry-interval-start=1s")
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, code=Code.UNAVAILABLE))
        await stand.claim("data", await stand.make_class())
        await stand.decided("data", "RetryLater")
        await stand.delete_claim("data")
        await stand.quiet(0)
        assert stand.csi.count("CreateVolume") == 2
        assert stand.csi.count("DeleteVolume") == 1


async def test_an_answer_that_cannot_be_read_does_not_lose_a_deleted_claim_s_volume(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner("--retry-interval-start=1s")
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, garbles=True))
        await stand.claim("data", await stand.make_class())
        await stand.event("data", "the answer is no CreateVolumeResponse")
        await stand.decided("data", "RetryLater")
        await stand.delete_claim("data")
        await stand.quiet(0)


async def test_after_a_final_error_a_deleted_claim_is_let_go(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner("--retry-interval-start=1s")
        stand.csi.inject(Fault("CreateVolume", when=When.BEFORE, code=Code.INTERNAL))
        await stand.claim("data", await stand.make_class())
        await stand.decided("data", "RetryLater")
        await stand.delete_claim("data")
        await stand.quiet(0)
        assert stand.csi.count("CreateVolume") == 1


async def test_an_infeasible_request_is_not_repeated_until_it_changes(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        stand.csi.inject(Fault("CreateVolume", when=When.BEFORE, code=Code.INVALID_ARGUMENT))
        name = await stand.make_class()
        await stand.claim("data", name)
        await stand.event("data", "Volume provisioning failed with infeasible error.")
        await stand.annotate("data", touched="yes")
        found = await stand.decided("data", "WaitFor")
        assert found.retry_at > 0
        assert stand.csi.count("CreateVolume") == 1
        await cluster.request("DELETE", f"{provisioning.CLASSES}/{name}")
        await stand.make_class()
        await stand.bound("data")


async def test_a_full_node_is_unselected_and_another_may_be_selected(
    cluster: clusters.Cluster,
) -> None:
    node = await cluster.start_node()
    async with provisioning.stand(cluster, node=node) as stand:
        await cluster.wait_for(
            f"/apis/storage.k8s.io/v1/csinodes/{node.name}",
            lambda one: one and one["spec"].get("drivers"),
            "registration",
        )
        await stand.provisioner()
        stand.csi.inject(Fault("CreateVolume", when=When.BEFORE, code=Code.RESOURCE_EXHAUSTED))
        name = await stand.make_class(volumeBindingMode="WaitForFirstConsumer")
        await stand.claim("data", name)
        selected = "volume.kubernetes.io__selected-node"
        owner = {"volume.kubernetes.io__storage-provisioner": stand.driver.name}
        await stand.annotate("data", **{selected: node.name, **owner})
        await cluster.wait_for(
            f"{stand.claims}/data",
            lambda one: selected.replace("__", "/") not in one["metadata"]["annotations"],
            "no selected node",
        )
        await stand.event("data", "rpc error: code = ResourceExhausted")
        await stand.annotate("data", **{selected: "gone"})
        await stand.event("data", 'error getting CSINode for selected node "gone"')
        await stand.annotate("data", **{selected: node.name})
        await stand.bound("data")
        await stand.quiet(1)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("empty", "CreateVolumeResponse has no volume:"),
        ("missing-id", "CreateVolumeResponse has no volume.volume_id"),
        ("capacity-too-small", "less than requested capacity 1048576"),
        ("huge-context", "code = ResourceExhausted"),
    ],
)
async def test_wrong_answers_are_named_and_survived(
    cluster: clusters.Cluster, fault: str, text: str
) -> None:
    async with provisioning.stand(cluster, fault=f"CreateVolume:{fault},times=1") as stand:
        await stand.provisioner()
        await stand.claim("data", await stand.make_class())
        await stand.event("data", text)
        await stand.bound("data")
        await stand.quiet(1)


async def test_what_users_get_wrong_is_said_on_the_claim(cluster: clusters.Cluster) -> None:
    prefix = "csi.storage.k8s.io"
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class()
        typo = await stand.make_class("typo", parameters={f"{prefix}/fstyp": "ext4"})
        half = await stand.make_class("half", parameters={f"{prefix}/secret-name": "x"})
        key = await stand.make_class(
            "key",
            parameters={
                f"{prefix}/provisioner-secret-name": "later",
                f"{prefix}/provisioner-secret-namespace": "${pvc.namespace}",
            },
        )
        source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"}
        await stand.claim("picky", name, selector={"matchLabels": {"a": "b"}})
        await stand.claim("typo", typo)
        await stand.claim("half", half)
        await stand.claim("copy", name, dataSource=source)
        await stand.claim("secret", key)
        for claim, text in (
            ("picky", "claim Selector is not supported"),
            ("typo", f'found unknown parameter key "{prefix}/fstyp"'),
            ("half", f"'{prefix}/secret-namespace' is not: set both"),
            ("copy", "does not provision from data sources yet; nothing was created"),
            ("secret", f"error getting secret later in namespace {cluster.namespace}"),
        ):
            event = await stand.event(claim, text)
            assert (event["type"], event["reason"]) == ("Warning", "ProvisioningFailed")
        assert stand.csi.count("CreateVolume") == 0
        path = f"/api/v1/namespaces/{cluster.namespace}/secrets"
        await cluster.request("POST", path, {"metadata": {"name": "later"}})
        await stand.bound("secret")
        await stand.settled(1)


async def test_a_missing_class_is_waited_for(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = f"{cluster.namespace}-fast"
        await stand.claim("data", name)
        await stand.annotate(
            "data", **{"volume.kubernetes.io__storage-provisioner": stand.driver.name}
        )
        await stand.event("data", f'storageClass "{name}" not found')
        await stand.make_class()
        await stand.bound("data")


async def test_a_failing_deletion_is_said_and_repeated(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        stand.csi.inject(Fault("DeleteVolume", code=Code.INTERNAL, message="busy"))
        await stand.claim("data", await stand.make_class())
        volume = (await stand.bound("data"))["metadata"]["name"]
        await stand.delete_claim("data")
        event = await stand.event(volume, "rpc error: code = Internal desc = busy", "default")
        assert (event["type"], event["reason"]) == ("Warning", "VolumeFailedDelete")
        await stand.quiet(0)
        assert stand.csi.count("DeleteVolume") == 2
