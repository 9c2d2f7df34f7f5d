"""The cluster fixture itself: what other tests take for granted."""

import pytest
from bitts.kube import kinds
from support import cluster as clusters
from support import leaks, processes, servers

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

CLASSES = "storageclasses.storage.k8s.io"


async def test_each_test_has_a_namespace_and_a_client(cluster: clusters.Cluster) -> None:
    client = await cluster.client()
    assert client is await cluster.client()
    found = await client.get(kinds.NAMESPACES, cluster.namespace)
    assert found.metadata.name == cluster.namespace


async def test_requests_are_counted_by_user_agent(cluster: clusters.Cluster) -> None:
    await cluster.clear_requests()
    client = await cluster.client(user_agent="bitts-tests-client")
    lease = {"metadata": {"name": "counted"}, "spec": {"holderIdentity": "nobody"}}
    await client.create(kinds.LEASES, lease, cluster.namespace)
    (row,) = await cluster.requests("bitts-tests-client")
    resource = "leases.coordination.k8s.io"
    assert (row.verb, row.resource, row.code, row.count) == ("create", resource, 201, 1)


@FAULTS
async def test_faults_hit_what_they_match_and_can_be_taken_back(
    cluster: clusters.Cluster,
) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses"
    await cluster.faults(match={"resource": CLASSES}, action="status", code=503)
    with pytest.raises(servers.RefusedError) as caught:
        await cluster.request("GET", path)
    assert caught.value.status == 503
    await cluster.clear_faults()
    assert (await cluster.request("GET", path))["kind"] == "StorageClassList"


async def test_a_driver_registers_with_the_node_it_is_installed_on(
    cluster: clusters.Cluster,
) -> None:
    node = await cluster.start_node()
    driver = await cluster.start_driver(node=node, backends="directory")
    found = await cluster.wait_for(
        f"/apis/storage.k8s.io/v1/csinodes/{node.name}",
        lambda csi_node: csi_node and csi_node["spec"]["drivers"],
        "registration in the CSINode",
    )
    assert [one["name"] for one in found["spec"]["drivers"]] == [driver.name]


async def test_a_killed_server_comes_back_with_its_objects(
    cluster_factory: clusters.Factory,
) -> None:
    own = await cluster_factory(store="sqlite")
    own.server.process.kill()
    await own.server.start()
    found = await own.request("GET", f"/api/v1/namespaces/{own.namespace}")
    assert found["metadata"]["name"] == own.namespace


async def test_kubectl_speaks_to_it(cluster: clusters.Cluster) -> None:
    assert "storageclasses" in await cluster.kubectl("api-resources", "-o", "name")


async def test_a_process_that_ends_early_shows_its_last_words(
    spawner: processes.Processes,
) -> None:
    process = spawner.spawn(["local-driver", "--no-such-flag"])
    with pytest.raises(processes.ProcessError, match="no-such-flag"):
        await process.wait_ready(lambda: False, "anything")


def test_processes_of_this_run_are_recognised(spawner: processes.Processes) -> None:
    before = leaks.snapshot()
    process = spawner.spawn(["/bin/sleep", "1000"])
    process.wait_ready_blocking(
        lambda: any(
            line.startswith(f"processes: {process.pid} ")
            for line in leaks.snapshot().leaked_since(before)
        ),
        "a leak is seen",
    )
    process.kill()
    assert leaks.snapshot().leaked_since(before) == []
