"""Claims of every kind become volumes, and go again: the plain way, nothing fails."""

from typing import Any

from bitts.rpc import introspection
from support import cluster as clusters
from support import ports, provisioning, waiting
from support.smalldriver import Capability, SmallDriver

ANY_NODE = {"multi_node_access": True}


async def test_a_claim_becomes_a_volume_and_goes_again(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class(mountOptions=["noatime"])
        uid = await stand.claim("data", name)
        volume = await stand.bound("data")
        assert volume["metadata"]["name"] == f"pvc-{uid}"
        assert (
            "external-provisioner.volume.kubernetes.io/finalizer"
            in (volume["metadata"]["finalizers"])
        )
        assert volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == (
            stand.driver.name
        )
        spec = volume["spec"]
        assert spec["claimRef"]["uid"] == uid
        assert spec["mountOptions"] == ["noatime"]
        assert spec["persistentVolumeReclaimPolicy"] == "Delete"
        assert "storage.kubernetes.io/csiProvisionerIdentity" in spec["csi"]["volumeAttributes"]
        await stand.settled(1)
        await stand.delete_claim("data")
        await stand.settled(0)
        assert stand.csi.count("CreateVolume") == stand.csi.count("DeleteVolume") == 1


MODES = ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany"]


async def test_every_access_mode_and_volume_mode(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster, multi_node_access=True) as stand:
        await stand.provisioner("--controller-publish-readonly", "--default-fstype=ext4")
        name = await stand.make_class()
        raw = await stand.make_class("raw", parameters={"backend": "image"})
        for mode in MODES:
            await stand.claim(mode.lower(), name, accessModes=[mode])
        await stand.claim("block", raw, volumeMode="Block")
        for mode in MODES:
            spec = (await stand.bound(mode.lower()))["spec"]
            assert spec["accessModes"] == [mode]
            assert spec["volumeMode"] == "Filesystem"
            assert spec["csi"]["fsType"] == "ext4"
            assert spec["csi"].get("readOnly", False) is (mode == "ReadOnlyMany")
        spec = (await stand.bound("block"))["spec"]
        assert spec["volumeMode"] == "Block"
        assert "fsType" not in spec["csi"]


async def test_a_retained_volume_stays_without_a_finalizer(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class(reclaimPolicy="Retain")
        await stand.claim("data", name)
        volume = await stand.bound("data")
        ours = "external-provisioner.volume.kubernetes.io/finalizer"
        assert ours not in volume["metadata"].get("finalizers", [])
        await stand.delete_claim("data")
        await cluster.wait_for(
            f"{provisioning.VOLUMES}/{volume['metadata']['name']}",
            lambda one: one["status"]["phase"] == "Released",
            "released",
        )
        await stand.settled(1)
        assert stand.csi.count("DeleteVolume") == 0


async def test_a_policy_that_changes_takes_the_finalizer_with_it(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        await stand.claim("data", await stand.make_class())
        path = f"{provisioning.VOLUMES}/{(await stand.bound('data'))['metadata']['name']}"
        ours = "external-provisioner.volume.kubernetes.io/finalizer"
        check = {
            True: lambda one: ours in one["metadata"].get("finalizers", []),
            False: lambda one: ours not in one["metadata"].get("finalizers", []),
        }
        for policy, is_there in (("Retain", False), ("Delete", True)):
            body = {"spec": {"persistentVolumeReclaimPolicy": policy}}
            kind = "application/merge-patch+json"
            await cluster.request("PATCH", path, body, content_type=kind)
            await cluster.wait_for(path, check[is_there], f"finalizer with policy {policy}")


async def test_secrets_and_names_reach_the_driver_and_no_log(cluster: clusters.Cluster) -> None:
    secret = {
        "metadata": {"name": "login"},
        "stringData": {"password": "s3cret-of-the-test"},
    }
    path = f"/api/v1/namespaces/{cluster.namespace}/secrets"
    async with provisioning.stand(cluster) as stand:
        process = await stand.provisioner("--extra-create-metadata", "--v=5")
        await cluster.request("POST", path, secret)
        prefix = "csi.storage.k8s.io"
        parameters = {
            f"{prefix}/provisioner-secret-name": "${pvc.annotations['team/secret']}",
            f"{prefix}/provisioner-secret-namespace": "${pvc.namespace}",
            f"{prefix}/node-stage-secret-name": "login",
            f"{prefix}/node-stage-secret-namespace": "${pvc.namespace}",
        }
        name = await stand.make_class(parameters=parameters)
        await stand.claim("data", name, annotations={"team/secret": "login"})
        volume = await stand.bound("data")
        annotations = volume["metadata"]["annotations"]
        where = "volume.kubernetes.io/provisioner-deletion-secret"
        assert annotations[f"{where}-name"] == "login"
        assert annotations[f"{where}-namespace"] == cluster.namespace
        assert volume["spec"]["csi"]["nodeStageSecretRef"]["name"] == "login"
        await stand.delete_claim("data")
        await stand.settled(0)
        log = process.output()
        assert log.count("***stripped***") >= 2, "one for CreateVolume, one for DeleteVolume"
        assert f"{prefix}/pvc/name" in log
        assert "s3cret-of-the-test" not in log
        for file in stand.folder.iterdir():
            if file.is_file():
                assert b"s3cret-of-the-test" not in file.read_bytes()


async def test_late_binding_follows_the_selected_node(cluster: clusters.Cluster) -> None:
    node = await cluster.start_node()
    async with provisioning.stand(cluster, node=node) as stand:
        await cluster.wait_for(
            f"/apis/storage.k8s.io/v1/csinodes/{node.name}",
            lambda one: one and one["spec"].get("drivers"),
            "registration",
        )
        await stand.provisioner("--strict-topology", "--immediate-topology=true")
        late = await stand.make_class("late", volumeBindingMode="WaitForFirstConsumer")
        await stand.claim("late", late)
        await stand.claim("now", await stand.make_class("now"))
        volume = await stand.bound("now")
        assert stand.csi.count("CreateVolume") == 1, "the late one waits for its node"
        key = "volume.kubernetes.io"
        await stand.annotate(
            "late",
            **{
                f"{key}__selected-node": node.name,
                f"{key}__storage-provisioner": stand.driver.name,
            },
        )
        volume = await stand.bound("late")
        [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        [expression] = term["matchExpressions"]
        assert expression["key"] == f"topology.{stand.driver.name}/node"
        assert expression["values"] == [node.name]


async def test_events_and_metrics_have_upstream_s_names(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        address = f"127.0.0.1:{ports.free()}"
        await stand.provisioner(f"--http-endpoint={address}")
        name = await stand.make_class()
        uid = await stand.claim("data", name)
        await stand.bound("data")
        event = await stand.event("data", f"Successfully provisioned volume pvc-{uid}")
        assert (event["type"], event["reason"]) == ("Normal", "ProvisioningSucceeded")
        assert event["source"]["component"].startswith(f"{stand.driver.name}_")
        await stand.delete_claim("data")
        await stand.settled(0)
        text = await provisioning.scrape(f"http://{address}/metrics")
        for line in (
            f'controller_persistentvolumeclaim_provision_total{{class="{name}",source=""}} 1',
            f'controller_persistentvolume_delete_total{{class="{name}"}} 1',
            'workqueue_adds_total{name="claims"}',
            'workqueue_depth{name="volumes"} 0',
            f'csi_sidecar_operations_seconds_count{{driver_name="{stand.driver.name}",'
            'method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="OK"} 1',
            "process_start_time_seconds",
            'registered_metrics_total{stability_level="BETA",deprecated_version=""} 10',
            "hidden_metrics_total 0",
            "disabled_metrics_total 0",
        ):
            assert line in text


async def test_one_claim_costs_one_write_before_it_is_usable(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class()
        await cluster.clear_requests()
        await stand.claim("data", name)
        await stand.bound("data")
        writes = [one for one in await cluster.requests("csi-provisioner") if one.verb == "create"]
        assert [(one.resource, one.count) for one in writes if one.resource != "events"] == [
            ("persistentvolumes", 1)
        ]
        await cluster.clear_requests()
        await stand.delete_claim("data")
        await stand.settled(0)
        writes = [
            one
            for one in await cluster.requests("csi-provisioner")
            if one.verb in ("create", "delete", "patch", "update") and one.resource != "events"
        ]
        assert sorted((one.verb, one.count) for one in writes) == [("delete", 1), ("patch", 1)]


async def test_the_process_answers_what_it_does_and_why(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class(volumeBindingMode="WaitForFirstConsumer")
        await stand.claim("data", name)
        await stand.annotate(
            "data", **{"volume.kubernetes.io__storage-provisioner": stand.driver.name}
        )
        key = f"{cluster.namespace}/data"
        socket = stand.folder / "bitts-csi-provisioner.sock"
        async with introspection.connect(str(socket)) as asked:

            async def told() -> Any:
                objects = (await asked.objects(key=key)).objects
                return objects and objects[0].decision == "WaitFor" and objects[0]

            found = await waiting.until(told, "a decision about the claim")
            assert "no node is selected yet" in found.reason
            explained = await asked.object(key)
            assert any("no node is selected yet" in one.text for one in explained.findings)
            process = await asked.process()
            assert process.program == "csi-provisioner"
            assert {one.name for one in process.queues} == {"claims", "volumes"}


async def test_an_attributes_class_reaches_the_driver(cluster: clusters.Cluster) -> None:
    socket = cluster.directory / "csi.sock"
    small = SmallDriver(str(socket), cluster.driver_name, Capability.MODIFY_VOLUME)
    classes = "/apis/storage.k8s.io/v1/volumeattributesclasses"
    name = f"{cluster.namespace}-gold"
    gold = {
        "metadata": {"name": name},
        "driverName": cluster.driver_name,
        "parameters": {"iops": "4000"},
    }
    async with provisioning.stand(cluster) as stand, small:
        process = await cluster.start_provisioner(socket, "--retry-interval-start=50ms")
        await process.wait_for_output(provisioning.STARTED)
        await stand.claim("data", await stand.make_class(), volumeAttributesClassName=name)
        await stand.event("data", "error getting VolumeAttributesClass")
        await cluster.request("POST", classes, gold)
        volume = await stand.bound("data")
        assert volume["spec"]["volumeAttributesClassName"] == name
        [request] = small.created
        assert request.mutable_parameters == {"iops": "4000"}
