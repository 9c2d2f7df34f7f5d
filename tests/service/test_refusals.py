"""What an API server refuses in the kinds that storage touches, by the field that it names.

On Kubernetes itself this is what is right, so the embedded server's rules are held to it.
"""

import json
from typing import Any

import pytest
from support import cluster as clusters
from support import servers

STORAGE = "/apis/storage.k8s.io/v1"
KEY = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0]"


def claim(**spec: Any) -> dict[str, Any]:
    given = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    }
    return {"metadata": {"name": "c"}, "spec": {**given, **spec}}


def volume(driver: str = "d.io", **spec: Any) -> dict[str, Any]:
    given = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": driver, "volumeHandle": "h"},
    }
    return {"metadata": {"name": "refused"}, "spec": {**given, **spec}}


def near(key: str, operator: str = "In", *values: str) -> dict[str, Any]:
    one = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
    return volume(nodeAffinity={"required": terms})


def storage_class(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "refused"}, "provisioner": "d.io", **fields}


def places(*expressions: dict[str, Any]) -> dict[str, Any]:
    return storage_class(allowedTopologies=[{"matchLabelExpressions": list(expressions)}])


def attachment(**spec: Any) -> dict[str, Any]:
    given = {"attacher": "d.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    return {"metadata": {"name": "refused"}, "spec": {**given, **spec}}


def csi_node(**driver: Any) -> dict[str, Any]:
    given = {"name": "d.io", "nodeID": "x", "topologyKeys": ["zone"]}
    return {"metadata": {"name": "refused"}, "spec": {"drivers": [{**given, **driver}]}}


def csi_driver(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "refused.io"}, "spec": spec}


def room(**fields: Any) -> dict[str, Any]:
    given = {"storageClassName": "fast", "nodeTopology": {"matchLabels": {"a": "b"}}}
    return {"metadata": {"name": "refused"}, **given, "capacity": "1Gi", **fields}


def pod(volumes: list[Any] | None = None, **container: Any) -> dict[str, Any]:
    made = {"name": "c", "image": "i", **container}
    spec = {"containers": [made], "volumes": volumes or [{"name": "v", "emptyDir": {}}]}
    return {"metadata": {"name": "p"}, "spec": spec}


def owned(*owners: tuple[str, str, bool]) -> dict[str, Any]:
    refs = [
        {"apiVersion": version, "kind": kind, "name": f"n{n}", "uid": f"u{n}", "controller": leads}
        for n, (version, kind, leads) in enumerate(owners)
    ]
    return {"metadata": {"name": "m", "ownerReferences": refs}}


Cases = dict[str, list[tuple[dict[str, Any], str]]]

IN_NAMESPACE: Cases = {
    "persistentvolumeclaims": [
        (claim(storageClassName="A_b"), "spec.storageClassName"),
        (claim(volumeAttributesClassName="A_b"), "spec.volumeAttributesClassName"),
        (claim(resources={}), "spec.resources[storage]"),
        (claim(accessModes=["ReadWriteOnce", "ReadWriteOncePod"]), "spec.accessModes"),
        (
            claim(selector={"matchExpressions": [{"key": "a", "operator": "X"}]}),
            "spec.selector.matchExpressions[0].operator",
        ),
        (claim(dataSource={"kind": "PersistentVolumeClaim", "name": ""}), "spec.dataSource.name"),
        (claim(dataSourceRef={"kind": "Pod", "name": "x"}), "spec.dataSourceRef"),
        (
            claim(
                dataSource={"kind": "PersistentVolumeClaim", "name": "x"},
                dataSourceRef={"kind": "PersistentVolumeClaim", "name": "y"},
            ),
            "spec",
        ),
    ],
    "configmaps": [
        ({"metadata": {"name": "m", "annotations": {"a b": "c"}}}, "metadata.annotations"),
        ({"metadata": {"name": "m", "annotations": {"a": "x" * 262_144}}}, "metadata.annotations"),
        ({"metadata": {"name": "m", "finalizers": ["a b/c"]}}, "metadata.finalizers"),
        (owned(("v1", "Pod", True), ("v1", "Pod", True)), "metadata.ownerReferences"),
        (owned(("a/b/c", "Pod", False)), "metadata.ownerReferences[0].apiVersion"),
        (owned(("v1", "Event", False)), "metadata.ownerReferences[0]"),
    ],
    "pods": [
        (pod(name="C_"), "spec.containers[0].name"),
        (pod(volumeMounts=[{"name": "v"}]), "spec.containers[0].volumeMounts[0].mountPath"),
        (
            pod(volumeMounts=[{"name": "v", "mountPath": "/v"}] * 2),
            "spec.containers[0].volumeMounts[1].mountPath",
        ),
        (pod(volumes=[{"name": "v", "emptyDir": {}}] * 2), "spec.volumes[1].name"),
        (
            pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
            "spec.volumes[0].hostPath",
        ),
        (
            pod(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]),
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes",
        ),
    ],
}

IN_CLUSTER: Cases = {
    "/api/v1/persistentvolumes": [
        (volume("A_b c"), "spec.csi.driver"),
        (volume("a" * 64), "spec.csi.driver"),
        (volume(capacity={"storage": "1", "cpu": "1"}), "spec.capacity"),
        (volume(storageClassName="A_b"), "spec.storageClassName"),
        (near("a b", "In", "z"), f"{KEY}.key"),
        (near("zone", "In", "x y"), f"{KEY}.values[0]"),
        (near("zone"), f"{KEY}.values"),
        (near("zone", "Exists", "z"), f"{KEY}.values"),
        (near("zone", "Near", "z"), f"{KEY}.operator"),
        (volume(csi=None, hostPath={"path": "/a/../b"}), "spec.hostPath.path"),
    ],
    f"{STORAGE}/storageclasses": [
        (storage_class(parameters={"": "x"}), "parameters"),
        (storage_class(parameters={f"k{n}": "" for n in range(513)}), "parameters"),
        (
            places({"key": "z", "values": ["a", "a"]}),
            "allowedTopologies[0].matchLabelExpressions[0].values[1]",
        ),
        (
            places({"key": "z", "values": []}),
            "allowedTopologies[0].matchLabelExpressions[0].values",
        ),
        (places(), "allowedTopologies[0].matchLabelExpressions"),
    ],
    f"{STORAGE}/volumeattachments": [
        (attachment(attacher="A b"), "spec.attacher"),
        (attachment(nodeName="A_b"), "spec.nodeName"),
        (attachment(source={}), "spec.source"),
    ],
    f"{STORAGE}/csinodes": [
        (csi_node(name="a b"), "spec.drivers[0].name"),
        (csi_node(nodeID="x" * 257), "spec.drivers[0].nodeID"),
        (csi_node(topologyKeys=["z", "z"]), "spec.drivers[0]"),
    ],
    f"{STORAGE}/csidrivers": [
        (csi_driver(volumeLifecycleModes=["x"]), "spec.volumeLifecycleModes"),
        (csi_driver(tokenRequests=[{"audience": "a"}] * 2), "spec.tokenRequests[1].audience"),
        (
            csi_driver(nodeAllocatableUpdatePeriodSeconds=5),
            "spec.nodeAllocatableUpdatePeriodSeconds",
        ),
    ],
}


async def refused(cluster: clusters.Cluster, path: str, body: dict[str, Any]) -> list[str]:
    """Return the fields that are named as wrong."""
    with pytest.raises(servers.RefusedError) as caught:
        await cluster.request("POST", f"{path}?dryRun=All", body)
    assert caught.value.status == 422, f"{body}: {caught.value}"
    status = json.loads(str(caught.value).partition(": ")[2])
    return [cause.get("field", "") for cause in status["details"]["causes"]]


@pytest.mark.parametrize("plural", IN_NAMESPACE)
async def test_mistakes_in_a_namespace(cluster: clusters.Cluster, plural: str) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/{plural}"
    for body, field in IN_NAMESPACE[plural]:
        assert field in await refused(cluster, path, body), body


@pytest.mark.parametrize("path", IN_CLUSTER)
async def test_mistakes_of_the_cluster_s_objects(cluster: clusters.Cluster, path: str) -> None:
    for body, field in IN_CLUSTER[path]:
        assert field in await refused(cluster, path, body), body


async def test_mistakes_in_capacities(cluster: clusters.Cluster) -> None:
    path = f"{STORAGE}/namespaces/{cluster.namespace}/csistoragecapacities"
    for body, field in (
        (room(storageClassName="A_b"), "storageClassName"),
        (room(capacity="-1"), "capacity"),
        (room(nodeTopology={"matchLabels": {"a b": "c"}}), "nodeTopology.matchLabels"),
        (room(nodeTopology={"matchLabels": {"a": "c d"}}), "nodeTopology.matchLabels"),
    ):
        assert field in await refused(cluster, path, body), body


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("dryRun=Some", 422),
        ("fieldValidation=Loose", 422),
        ("fieldValidation=Strict", 201),
    ],
)
async def test_options_of_a_creation(cluster: clusters.Cluster, query: str, code: int) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps?{query}"
    body = {"metadata": {"name": "m"}}
    if code == 201:
        await cluster.request("POST", path, body)
        return
    with pytest.raises(servers.RefusedError) as caught:
        await cluster.request("POST", path, body)
    assert caught.value.status == code
