"""CSIStorageCapacity objects: one per class and place, kept right whatever happens to them."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from support import cluster as clusters
from support import provisioning, servers, waiting
from support.smalldriver import Capability, SmallDriver

Obj = dict[str, Any]
ZONE = "example.com/zone"
TIB = 1 << 40


class Figures:
    """The capacity objects of one test, and how to wait for them."""

    def __init__(self, cluster: clusters.Cluster, small: SmallDriver) -> None:
        self.cluster = cluster
        self.small = small
        self.path = f"/apis/storage.k8s.io/v1/namespaces/{cluster.namespace}/csistoragecapacities"

    async def read(self) -> list[Obj]:
        items: list[Obj] = (await self.cluster.request("GET", self.path))["items"]
        return items

    async def until(self, check: Callable[[list[Obj]], bool], what: str) -> list[Obj]:
        async def found() -> list[list[Obj]]:
            items = await self.read()
            return [items] if check(items) else []

        return (await waiting.until(found, what))[0]


async def add_node(cluster: clusters.Cluster, driver: str, name: str, zone: str) -> None:
    node = {"metadata": {"name": name, "labels": {ZONE: zone}}, "spec": {"unschedulable": True}}
    await cluster.request("POST", "/api/v1/nodes", node)
    drivers = [{"name": driver, "nodeID": name, "topologyKeys": [ZONE]}]
    body = {"metadata": {"name": name}, "spec": {"drivers": drivers}}
    await cluster.request("POST", "/apis/storage.k8s.io/v1/csinodes", body)


async def remove_node(cluster: clusters.Cluster, name: str) -> None:
    for path in ("/api/v1/nodes", "/apis/storage.k8s.io/v1/csinodes"):
        with contextlib.suppress(servers.RefusedError):
            await cluster.request("DELETE", f"{path}/{name}")


@contextlib.asynccontextmanager
async def publishing(
    cluster: clusters.Cluster, stand: provisioning.Stand, *words: str, level: int = 0
) -> AsyncIterator[Figures]:
    """Two nodes in two zones, a pod to own the objects, and a provisioner that publishes."""
    socket = cluster.directory / "csi.sock"
    async with SmallDriver(str(socket), cluster.driver_name, Capability.GET_CAPACITY) as small:
        for zone in ("z1", "z2"):
            await add_node(cluster, small.name, f"{cluster.namespace}-{zone}", zone)
        container = {"name": "main", "image": "none", "command": ["true"]}
        pod = {
            "metadata": {"name": "owner"},
            "spec": {"containers": [container], "nodeSelector": {"no": "node"}},
        }
        await cluster.request("POST", f"/api/v1/namespaces/{cluster.namespace}/pods", pod)
        given = ["--enable-capacity", f"--capacity-ownerref-level={level}", *words]
        environ = {"NAMESPACE": cluster.namespace, "POD_NAME": "owner"}
        process = await cluster.start_provisioner(socket, *given, environ=environ)
        await process.wait_for_output(provisioning.STARTED)
        yield Figures(cluster, small)
        for zone in ("z1", "z2", "z3"):
            await remove_node(cluster, f"{cluster.namespace}-{zone}")


def zones(items: list[Obj]) -> list[str]:
    return sorted(one["nodeTopology"]["matchLabels"][ZONE] for one in items)


async def test_every_place_has_its_figure(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand, publishing(cluster, stand) as figures:
        parameters = {"tier": "gold"}
        name = await stand.make_class(
            volumeBindingMode="WaitForFirstConsumer", parameters=parameters
        )
        await stand.make_class("now", volumeBindingMode="Immediate")
        items = await figures.until(lambda items: zones(items) == ["z1", "z2"], "two objects")
        for one in items:
            assert one["storageClassName"] == name
            assert one["capacity"] == "1Ti"
            assert one["metadata"]["name"].startswith("csisc-")
            assert one["metadata"]["labels"] == {
                "csi.storage.k8s.io/drivername": cluster.driver_name,
                "csi.storage.k8s.io/managed-by": "external-provisioner",
            }
            [owner] = one["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "owner", True)
        assert figures.small.asked[0].parameters == parameters
        await add_node(cluster, cluster.driver_name, f"{cluster.namespace}-z3", "z3")
        await figures.until(lambda items: zones(items) == ["z1", "z2", "z3"], "a new place")
        await remove_node(cluster, f"{cluster.namespace}-z3")
        await figures.until(lambda items: zones(items) == ["z1", "z2"], "a place gone")
        await cluster.request("DELETE", f"{provisioning.CLASSES}/{name}")
        await figures.until(lambda items: not items, "no class, no object")


async def test_figures_follow_the_driver_and_volumes(cluster: clusters.Cluster) -> None:
    words = ["--capacity-for-immediate-binding", "--immediate-topology=false"]
    async with (
        provisioning.stand(cluster) as stand,
        publishing(cluster, stand, *words, level=-1) as figures,
    ):
        name = await stand.make_class()
        items = await figures.until(lambda items: len(items) == 2, "two objects")
        assert "ownerReferences" not in items[0]["metadata"]
        figures.small.available = TIB // 2
        await stand.claim("data", name)
        await stand.bound("data")
        await figures.until(
            lambda items: all(one["capacity"] == "512Gi" for one in items), "less room"
        )


async def test_objects_that_others_touch_are_put_right(cluster: clusters.Cluster) -> None:
    words = ["--capacity-poll-interval=500ms"]
    async with provisioning.stand(cluster) as stand, publishing(cluster, stand, *words) as figures:
        await stand.make_class(volumeBindingMode="WaitForFirstConsumer")
        items = await figures.until(lambda items: len(items) == 2, "two objects")
        first, second = (f"{figures.path}/{one['metadata']['name']}" for one in items)
        await cluster.request("DELETE", first)
        body = {"capacity": "1"}
        kind = "application/merge-patch+json"
        await cluster.request("PATCH", second, body, content_type=kind)
        await figures.until(
            lambda items: len(items) == 2 and all(one["capacity"] == "1Ti" for one in items),
            "both as before",
        )
        copy = {key: items[1][key] for key in ("storageClassName", "nodeTopology", "capacity")}
        labels = items[1]["metadata"]["labels"]
        extra = {"metadata": {"generateName": "csisc-", "labels": labels}, **copy}
        await cluster.request("POST", figures.path, extra)
        await figures.until(lambda items: len(items) == 2, "the double is gone")
        figures.small.available = TIB * 2
        await figures.until(
            lambda items: all(one["capacity"] == "2Ti" for one in items), "polled anew"
        )


async def test_objects_of_a_former_owner_are_taken_over(cluster: clusters.Cluster) -> None:
    """After a rollout the former ReplicaSet is there still, and an object has one controller."""
    words = ["--capacity-poll-interval=500ms"]
    async with provisioning.stand(cluster) as stand, publishing(cluster, stand, *words) as figures:
        await stand.make_class(volumeBindingMode="WaitForFirstConsumer")
        items = await figures.until(lambda items: len(items) == 2, "two objects")
        maps = f"/api/v1/namespaces/{cluster.namespace}/configmaps"
        made = await cluster.request("POST", maps, {"metadata": {"name": "former"}})
        former = {"apiVersion": "v1", "kind": "ConfigMap", "name": "former", "controller": True}
        owners = [{**former, "uid": made["metadata"]["uid"]}]
        path = f"{figures.path}/{items[0]['metadata']['name']}"
        body = {"metadata": {"ownerReferences": owners}, "capacity": "1"}
        await cluster.request("PATCH", path, body, content_type="application/merge-patch+json")
        items = await figures.until(
            lambda items: all(one["capacity"] == "1Ti" for one in items), "the right capacity"
        )
        [owners] = [
            one["metadata"]["ownerReferences"]
            for one in items
            if len(one["metadata"]["ownerReferences"]) == 2
        ]
        leading = {one["kind"]: one.get("controller", False) for one in owners}
        assert leading == {"ConfigMap": False, "Pod": True}


async def test_capacity_that_cannot_be_told_is_logged(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster, fault="GetCapacity:code=UNAVAILABLE") as stand:
        name = await stand.make_class(volumeBindingMode="WaitForFirstConsumer")
        await add_node(cluster, stand.driver.name, f"{cluster.namespace}-z1", "z1")
        environ = {"NAMESPACE": cluster.namespace}
        words = ["--enable-capacity", "--capacity-ownerref-level=-1"]
        process = await stand.provisioner(*words, **environ)
        log = await process.wait_for_output('"Capacity is not up to date"')
        assert "the driver did not tell: rpc error: code = Unavailable" in log
        assert f'storage_class="{name}" segment="{ZONE}=z1"' in log
        await remove_node(cluster, f"{cluster.namespace}-z1")


async def test_an_owner_that_cannot_be_found_is_an_error(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        environ = {"NAMESPACE": cluster.namespace, "POD_NAME": "nobody"}
        process = await stand.launch("--enable-capacity", **environ)
        assert await process.wait() == 255
        assert "set --capacity-ownerref-level=-1" in process.output()
