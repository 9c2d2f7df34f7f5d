"""All that csi-provisioner does on a cluster that lets it do no more than what is documented."""

import contextlib
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from bitts.rpc.codes import Code
from support import cluster as clusters
from support import provisioning, servers
from support.provisioning import Stand
from support.proxy import Fault

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.kubernetes(reason="the embedded cluster lets everybody do everything"),
]
Obj = dict[str, Any]
MANIFEST = pathlib.Path(__file__).parents[2] / "services" / "provisioner" / "deploy" / "rbac.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PREFIX = "csi.storage.k8s.io"


def rules(namespace: str) -> list[tuple[str, Obj]]:
    """Return where to create what, in a test's namespace and under names of its own."""
    text = MANIFEST.read_text().replace("namespace: default", f"namespace: {namespace}")
    objects = [one for one in yaml.safe_load_all(text) if one]
    for one in objects:
        if "Cluster" in one["kind"]:
            one["metadata"]["name"] = f"{namespace}-csi-provisioner"
        if one["kind"] == "ClusterRoleBinding":
            one["roleRef"]["name"] = f"{namespace}-csi-provisioner"
    paths = {
        "ServiceAccount": f"/api/v1/namespaces/{namespace}/serviceaccounts",
        "ClusterRole": f"{RBAC}/clusterroles",
        "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
        "Role": f"{RBAC}/namespaces/{namespace}/roles",
        "RoleBinding": f"{RBAC}/namespaces/{namespace}/rolebindings",
    }
    return [(paths[one["kind"]], one) for one in objects]


@contextlib.asynccontextmanager
async def account(cluster: clusters.Cluster) -> AsyncIterator[pathlib.Path]:
    """Create what the manifest holds; gives the path of the service account's kubeconfig."""
    made = rules(cluster.namespace)
    for path, body in made:
        await cluster.request("POST", path, body)
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/csi-provisioner/token"
    token = (await cluster.request("POST", path, {"spec": {}}))["status"]["token"]
    access = cluster.server.access
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": access.url, "certificate-authority": str(access.ca)},
            }
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = cluster.directory / "account.kubeconfig"
    file.write_text(json.dumps(config))
    yield file
    for path, body in made:
        if "Cluster" in body["kind"]:
            with contextlib.suppress(servers.RefusedError):
                await cluster.request("DELETE", f"{path}/{body['metadata']['name']}")


async def owner(cluster: clusters.Cluster) -> str:
    """Make a Deployment for capacity objects to belong to; returns the name of its pod."""
    labels = {"app": "controller"}
    container = {"name": "main", "image": "none"}
    body = {
        "metadata": {"name": "controller"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "nodeSelector": {"no": "node"}},
            },
        },
    }
    namespace = cluster.namespace
    await cluster.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", body)
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dcontroller"
    found = await cluster.wait_for(path, lambda one: one["items"], "the Deployment's pod")
    return str(found["items"][0]["metadata"]["name"])


async def everything(stand: Stand, node: str) -> None:
    """Make use of every permission but those of capacity and election, which happen anyway."""
    cluster, name = stand.cluster, stand.cluster.namespace
    slow = await stand.make_attributes_class(readIops="100")
    parameters = {
        "backend": "image",
        f"{PREFIX}/provisioner-secret-name": "login",
        f"{PREFIX}/provisioner-secret-namespace": name,
    }
    keyed = await stand.make_class("keyed", parameters=parameters)
    await stand.claim("keyed", keyed, volumeAttributesClassName=slow)
    warning = await stand.event("keyed", "error getting secret login")
    path = f"/api/v1/namespaces/{name}/events/{warning['metadata']['name']}"
    await cluster.wait_for(path, lambda one: one.get("count", 1) > 1, "the event, told again")
    body = {"metadata": {"name": "login"}, "stringData": {"password": "x"}}
    await cluster.request("POST", f"/api/v1/namespaces/{name}/secrets", body)
    await stand.bound("keyed")

    stand.csi.inject(Fault("CreateVolume", code=Code.RESOURCE_EXHAUSTED))
    late = await stand.make_class("late", volumeBindingMode="WaitForFirstConsumer")
    await stand.claim("late", late)
    selected = "volume.kubernetes.io/selected-node"
    driver = {"volume.kubernetes.io__storage-provisioner": stand.driver.name}
    await stand.annotate("late", **driver, **{selected.replace("/", "__"): node})
    await cluster.wait_for(
        f"{stand.claims}/late",
        lambda one: selected not in one["metadata"]["annotations"],
        "the selected node is taken off",
    )
    await stand.annotate("late", **{selected.replace("/", "__"): node})
    await stand.bound("late")


async def test_the_documented_permissions_suffice_for_everything(
    cluster: clusters.Cluster,
) -> None:
    node = await cluster.start_node()
    options = {"node": node, "attach": True}
    async with account(cluster) as kubeconfig, provisioning.stand(cluster, **options) as stand:
        await cluster.wait_for(
            f"/apis/storage.k8s.io/v1/csinodes/{node.name}",
            lambda one: stand.driver.name in str(one),
            "registration",
        )
        words = [
            f"--kubeconfig={kubeconfig}",
            "--immediate-topology=true",
            "--leader-election",
            f"--leader-election-namespace={cluster.namespace}",
            "--enable-capacity",
            "--capacity-ownerref-level=2",
            "--capacity-poll-interval=500ms",
        ]
        environ = {"NAMESPACE": cluster.namespace, "POD_NAME": await owner(cluster)}
        await cluster.clear_requests()  # of provisioners of other tests, at the end of their rights
        process = await stand.provisioner(*words, **environ)
        await everything(stand, node.name)
        path = f"/apis/storage.k8s.io/v1/namespaces/{cluster.namespace}/csistoragecapacities"
        figures = await cluster.wait_for(path, lambda one: one["items"], "capacity objects")
        [reference] = figures["items"][0]["metadata"]["ownerReferences"]
        assert reference["kind"] == "Deployment"
        where = f"{path}/{figures['items'][0]['metadata']['name']}"
        change, kind = {"capacity": "1"}, "application/merge-patch+json"
        await cluster.request("PATCH", where, change, content_type=kind)
        await cluster.wait_for(where, lambda one: one["capacity"] != "1", "the figure put right")
        await cluster.request("DELETE", f"{provisioning.CLASSES}/{cluster.namespace}-late")
        await cluster.wait_for(path, lambda one: not one["items"], "no class, no object")
        for name in ("keyed", "late"):
            await stand.delete_claim(name)
        await stand.settled(0)
        assert await process.stop() == 0
        intents = stand.driver.name.replace(".", "-") + "-intents"
        await cluster.request(
            "GET",
            f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases/{intents}",
        )
        assert "forbidden" not in process.output().lower()
        rows = await cluster.requests("csi-provisioner")
        assert [one for one in rows if one.code == 403] == []
        assert {one.resource for one in rows} > {"persistentvolumes", "events"}
