"""Unmodified kubectl works against the API server: what people and scripts do every day."""

import asyncio
import json
import pathlib
from dataclasses import dataclass

import pytest
from devcluster import gobuild
from support import cluster as clusters
from support import peers, processes

pytestmark = pytest.mark.builds("kubectl")

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: shop}}
data: {color: red, size: "1"}
"""
CLAIMS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %(name)s}
provisioner: %(name)s.example.com
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: %(name)s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.%(name)s.example.com}
spec:
  group: %(name)s.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Sails, type: integer, jsonPath: .spec.sails}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, required: [sails], properties: {sails: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
BOAT = """
apiVersion: %(name)s.example.com/v1
kind: Boat
metadata: {name: anna}
spec: {sails: %(sails)s}
"""


@pytest.fixture(scope="session")
def binary() -> pathlib.Path:
    try:
        return peers.tool("kubectl")
    except gobuild.ToolchainError as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Kubectl:
    """kubectl with the rights, the namespace and the home of one test."""

    command: list[str]
    folder: pathlib.Path
    cluster: clusters.Cluster

    async def __call__(self, *words: str, fails: bool = False) -> str:
        """Run to the end; with ``fails`` return what it complains about instead."""
        if not fails:
            return await processes.run([*self.command, *words])
        with pytest.raises(processes.ProcessError) as caught:
            await processes.run([*self.command, *words])
        return str(caught.value)

    async def apply(self, text: str, *words: str, fails: bool = False) -> str:
        """Apply a manifest."""
        path = self.folder / "manifest.yaml"
        path.write_text(text)
        return await self("apply", "-f", str(path), *words, fails=fails)


@pytest.fixture
def kubectl(binary: pathlib.Path, cluster: clusters.Cluster, tmp_path: pathlib.Path) -> Kubectl:
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", cluster.namespace]
    return Kubectl([str(binary), *flags, f"--cache-dir={tmp_path / 'cache'}"], tmp_path, cluster)


async def test_it_knows_the_server_and_its_resources(kubectl: Kubectl) -> None:
    assert "Server Version: v1.37" in await kubectl("version")
    listed = await kubectl("api-resources")
    for kind in (
        "PersistentVolumeClaim",
        "VolumeAttachment",
        "CSINode",
        "Lease",
        "CSIStorageCapacity",
    ):
        assert f" {kind}\n" in listed
    assert "storage.k8s.io/v1" in await kubectl("api-versions")
    assert await kubectl("get", "--raw", "/readyz") == "ok"


async def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    assert "settings created" in await kubectl.apply(CONFIG)
    assert "settings unchanged" in await kubectl.apply(CONFIG)
    assert "settings configured" in await kubectl.apply(CONFIG.replace("red", "blue"))
    assert "serverside-applied" in await kubectl.apply(CONFIG, "--server-side", "--force-conflicts")
    shown = json.loads(await kubectl("get", "configmap", "settings", "-o", "json"))
    assert shown["data"] == {"color": "red", "size": "1"}
    prune = ("--prune", "--prune-allowlist=core/v1/ConfigMap", "-l", "app=shop")
    assert "pruned" in await kubectl.apply(CONFIG.replace("settings", "other"), *prune)


async def test_server_side_apply_names_the_conflict(kubectl: Kubectl) -> None:
    await kubectl.apply(CONFIG, "--server-side", "--field-manager=ann")
    changed = CONFIG.replace("red", "blue")
    words = ("--server-side", "--field-manager=ben")
    complaint = await kubectl.apply(changed, *words, fails=True)
    assert 'Apply failed with 1 conflict: conflict with "ann": .data.color' in complaint
    assert "serverside-applied" in await kubectl.apply(changed, *words, "--force-conflicts")


async def test_typed_commands_send_protobuf(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "m", "--from-literal=k=v")
    await kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    await kubectl("create", "serviceaccount", "a")
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    assert "k:  1 bytes" in await kubectl("describe", "secret", "s")
    assert "already exists" in await kubectl("create", "serviceaccount", "a", fails=True)
    assert await kubectl("get", "configmap", "m", "-o", "jsonpath={.data.k}") == "v"


async def test_objects_are_edited_in_every_way(kubectl: Kubectl) -> None:
    await kubectl.apply(CONFIG)
    await kubectl("label", "configmap", "settings", "tier=front")
    await kubectl("annotate", "configmap", "settings", "note=x")
    await kubectl("patch", "configmap", "settings", "-p", '{"data":{"size":"2"}}')
    await kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"data":{"a":"b"}}')
    operations = '[{"op":"remove","path":"/data/color"}]'
    await kubectl("patch", "configmap", "settings", "--type=json", "-p", operations)
    shown = json.loads(await kubectl("get", "configmap", "settings", "-o", "json"))
    assert shown["data"] == {"size": "2", "a": "b"}
    assert shown["metadata"]["labels"]["tier"] == "front"
    path = kubectl.folder / "edited.json"
    path.write_text(json.dumps(shown | {"data": {"new": "1"}}))
    await kubectl("replace", "-f", str(path))
    assert "object has been modified" in await kubectl("replace", "-f", str(path), fails=True)
    assert (
        await kubectl("get", "configmap", "-l", "tier=front", "-o", "name")
        == "configmap/settings\n"
    )


async def test_claims_are_shown_and_described(kubectl: Kubectl) -> None:
    name = kubectl.cluster.namespace
    await kubectl.apply(CLAIMS % {"name": name})
    table = await kubectl("get", "pvc", "-o", "wide")
    assert table.splitlines()[0].split()[:4] == ["NAME", "STATUS", "VOLUME", "CAPACITY"]
    assert "Filesystem" in table
    assert "kubernetes.io/pvc-protection" in await kubectl("describe", "pvc", "data")
    assert f"{name}.example.com" in await kubectl("get", "storageclass", name)
    invalid = (CLAIMS % {"name": name}).replace("ReadWriteOnce", "ReadWriteAlways")
    complaint = await kubectl.apply(invalid.replace("name: data", "name: other"), fails=True)
    assert 'spec.accessModes: Unsupported value: "ReadWriteAlways"' in complaint
    bigger = '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}'
    complaint = await kubectl("patch", "pvc", "data", "-p", bigger, fails=True)
    assert "spec is immutable after creation except resources.requests" in complaint
    await kubectl("delete", "storageclass", name)


async def test_mistakes_in_a_manifest_are_named(kubectl: Kubectl) -> None:
    name = kubectl.cluster.namespace
    made, _, claim = (CLAIMS % {"name": name}).partition("---")
    complaint = await kubectl.apply(made + "parameters: {replicas: 3}", fails=True)
    words = "cannot unmarshal number into Go struct field StorageClass.parameters"
    assert words in complaint
    complaint = await kubectl.apply(claim.replace("[ReadWriteOnce]", "ReadWriteOnce"), fails=True)
    assert "PersistentVolumeClaimSpec.spec.accessModes of type []" in complaint
    complaint = await kubectl.apply(claim.replace("storageClassName", "storageClass"), fails=True)
    assert 'strict decoding error: unknown field "spec.storageClass"' in complaint
    assert await kubectl("get", "pvc", "-o", "name") == ""


async def test_events_are_listed_for_an_object(kubectl: Kubectl) -> None:
    await kubectl.apply(CONFIG)
    namespace = kubectl.cluster.namespace
    about = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": "settings"}
    event = {"metadata": {"name": "e1"}, "involvedObject": about, "reason": "Noted"}
    event |= {"type": "Warning", "message": "look at this", "lastTimestamp": "2026-01-01T00:00:00Z"}
    await kubectl.cluster.request("POST", f"/api/v1/namespaces/{namespace}/events", event)
    for words in (("get", "events"), ("events", "--for", "configmap/settings")):
        assert "look at this" in await kubectl(*words)


async def test_wait_and_delete_follow_the_object(kubectl: Kubectl) -> None:
    await kubectl.apply(CONFIG.replace("labels", "finalizers: [example.com/x], labels"))
    waiting_for = (
        "wait",
        "--for=jsonpath={.data.color}=green",
        "configmap/settings",
        "--timeout=80s",
    )
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(kubectl(*waiting_for))
        await kubectl("patch", "configmap", "settings", "-p", '{"data":{"color":"green"}}')
    assert "condition met" in waiter.result()
    async with asyncio.TaskGroup() as tasks:
        deleter = tasks.create_task(kubectl("delete", "configmap", "settings", "--timeout=80s"))
        path = f"/api/v1/namespaces/{kubectl.cluster.namespace}/configmaps/settings"
        await kubectl.cluster.wait_for(
            path, lambda found: "deletionTimestamp" in found["metadata"], "the deletion mark"
        )
        assert not deleter.done()
        await kubectl("patch", "configmap", "settings", "-p", '{"metadata":{"finalizers":null}}')
    assert "deleted" in deleter.result()
    assert "NotFound" in await kubectl("get", "configmap", "settings", fails=True)


async def test_a_namespace_ends_with_all_that_is_in_it(kubectl: Kubectl) -> None:
    name = f"{kubectl.cluster.namespace}-b"
    await kubectl("create", "namespace", name)
    await kubectl("create", "configmap", "m", "-n", name)
    await kubectl("delete", "namespace", name, "--timeout=80s")
    assert "NotFound" in await kubectl("get", "namespace", name, fails=True)


async def test_changes_are_watched(kubectl: Kubectl) -> None:
    await kubectl.apply(CONFIG)
    watch = kubectl.cluster.processes.spawn(
        [*kubectl.command, "get", "configmap", "settings", "--watch"]
    )
    await watch.wait_for_output("settings   2")
    await kubectl("patch", "configmap", "settings", "-p", '{"data":{"more":"1"}}')
    await watch.wait_for_output("settings   3")


async def test_custom_resources_are_served_at_once(kubectl: Kubectl) -> None:
    name = kubectl.cluster.namespace
    await kubectl.apply(DEFINITION % {"name": name})
    crd = f"crd/boats.{name}.example.com"
    assert "condition met" in await kubectl("wait", "--for=condition=Established", crd)
    complaint = await kubectl.apply(BOAT % {"name": name, "sails": "many"}, fails=True)
    assert "spec.sails in body must be of type integer" in complaint
    await kubectl.apply(BOAT % {"name": name, "sails": "3"})
    await kubectl.apply(BOAT % {"name": name, "sails": "4"})
    rows = (await kubectl("get", f"boats.{name}.example.com")).splitlines()
    assert [row.split() for row in rows] == [["NAME", "SAILS"], ["anna", "4"]]
    status = '{"status":{"afloat":true},"spec":{"sails":9}}'
    await kubectl(
        "patch",
        f"boats.{name}.example.com/anna",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    )
    shown = json.loads(await kubectl("get", f"boats.{name}.example.com/anna", "-o", "json"))
    assert (shown["spec"], shown["status"]) == ({"sails": 4}, {"afloat": True})
    await kubectl("delete", crd, "--timeout=80s")


async def test_long_lists_come_in_pages(kubectl: Kubectl) -> None:
    path = f"/api/v1/namespaces/{kubectl.cluster.namespace}/configmaps"
    for number in range(7):
        await kubectl.cluster.request("POST", path, {"metadata": {"name": f"m{number}"}})
    names = (await kubectl("get", "configmap", "--chunk-size=3", "-o", "name")).split()
    own = [name for name in names if "kube-root-ca" not in name]
    assert own == [f"configmap/m{number}" for number in range(7)]
