"""The API server as clients meet it: a real process, over TLS, with plain HTTP requests."""

import asyncio
import contextlib
import io
import json
import pathlib
import ssl
from typing import Any

import aiohttp
import pytest
from support import cluster as clusters
from support import servers, streams, waiting

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

MERGE = "application/merge-patch+json"


@pytest.fixture
def maps(cluster: clusters.Cluster) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/configmaps"


async def create(cluster: clusters.Cluster, maps: str, name: str, **labels: str) -> Any:
    return await cluster.request("POST", maps, {"metadata": {"name": name, "labels": labels}})


async def patch(cluster: clusters.Cluster, path: str, body: Any, kind: str = MERGE) -> Any:
    return await cluster.request("PATCH", path, body, content_type=kind)


async def others(cluster: clusters.Cluster, maps: str) -> list[str]:
    """Return the names of maps that the test did not make."""
    found = (await cluster.request("GET", maps))["items"]
    return [o["metadata"]["name"] for o in found if len(o["metadata"]["name"]) > 2]


async def refused(cluster: clusters.Cluster, method: str, path: str, body: Any = None) -> Any:
    """Make a request that must be refused and return the Status."""
    with pytest.raises(servers.RefusedError) as caught:
        await cluster.request(method, path, body)
    return json.loads(str(caught.value).partition(": ")[2])


@pytest.mark.parametrize(
    "path", ["/healthz", "/version", "/api", "/api/v1/pods", "/-/requests", "/x"]
)
@pytest.mark.parametrize("token", ["", "Bearer", "Bearer wrong", "Basic wrong"])
async def test_without_the_token_nothing_is_answered(
    cluster: clusters.Cluster, path: str, token: str
) -> None:
    async with cluster.server.session() as session:
        headers = {"Authorization": token}
        async with session.get(path, headers=headers) as answer:
            assert answer.status == 401
            assert (await answer.json())["reason"] == "Unauthorized"


async def test_a_token_of_any_bytes_is_just_a_wrong_one(cluster: clusters.Cluster) -> None:
    access = cluster.server.access
    context = ssl.create_default_context(cafile=access.ca)
    async with asyncio.timeout(60.0):
        reader, writer = await asyncio.open_connection("127.0.0.1", access.port, ssl=context)
        writer.write(b"GET /version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"401"
        writer.close()


async def test_plain_http_and_foreign_certificates_get_nowhere(cluster: clusters.Cluster) -> None:
    url = cluster.server.access.url
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{url}/version")
        # Nothing is answered, or the complaint in plain words that servers of Go give.
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(f"{url.replace('https', 'http')}/version") as answer:
                assert answer.status == 400


async def test_only_the_owner_may_read_the_credentials(cluster: clusters.Cluster) -> None:
    access = cluster.server.access
    for path in (access.kubeconfig, access.kubeconfig.with_name("token")):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_a_create_is_answered_with_the_object(cluster: clusters.Cluster, maps: str) -> None:
    made = await create(cluster, maps, "a")
    assert made["kind"] == "ConfigMap"
    assert await cluster.request("GET", f"{maps}/a") == made


async def test_refusals_have_the_shape_that_clients_read(
    cluster: clusters.Cluster, maps: str
) -> None:
    await create(cluster, maps, "a")
    status = await refused(cluster, "POST", maps, {"metadata": {"name": "a"}})
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", 409)
    assert (status["reason"], status["details"]["name"]) == ("AlreadyExists", "a")
    assert (await refused(cluster, "GET", f"{maps}/none"))["reason"] == "NotFound"
    assert (await refused(cluster, "GET", "/api/v1/nonsense"))["code"] == 404
    invalid = await refused(cluster, "POST", maps, {"metadata": {"name": "A"}})
    assert (invalid["reason"], invalid["code"]) == ("Invalid", 422)
    assert invalid["details"]["causes"][0]["field"] == "metadata.name"
    wrong = await refused(cluster, "POST", maps, {"kind": "Secret", "metadata": {"name": "x"}})
    assert wrong["code"] == 400


async def test_broken_and_too_large_bodies_are_refused(
    cluster: clusters.Cluster, maps: str
) -> None:
    headers = {"Content-Type": "application/json"}
    async with cluster.server.session() as session:
        for body, code in ((b"{", 400), (b"[]", 400), (b"x" * (3 * 2**20 + 1), 413)):
            async with session.post(maps, data=io.BytesIO(body), headers=headers) as answer:
                assert answer.status == code
        async with session.post(maps, data=b"{}", headers={"Content-Type": "text/html"}) as answer:
            assert answer.status == 415


async def test_a_put_needs_the_version_it_read(cluster: clusters.Cluster, maps: str) -> None:
    first = await create(cluster, maps, "a")
    await cluster.request("PUT", f"{maps}/a", {**first, "data": {"k": "1"}})
    status = await refused(cluster, "PUT", f"{maps}/a", {**first, "data": {"k": "2"}})
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert "please apply your changes to the latest version" in status["message"]


async def test_a_lease_has_one_winner(cluster: clusters.Cluster) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases"
    lease = await cluster.request("POST", leases, {"metadata": {"name": "l"}, "spec": {}})

    async def claim(number: int) -> int | None:
        body = {
            **lease,
            "spec": {"holderIdentity": f"candidate-{number}", "leaseDurationSeconds": 15},
        }
        try:
            await cluster.request("PUT", f"{leases}/l", body)
        except servers.RefusedError as error:
            return None if error.status == 409 else -1
        return number

    winners = [won for won in await asyncio.gather(*map(claim, range(10))) if won is not None]
    found = await cluster.request("GET", f"{leases}/l")
    assert [found["spec"]["holderIdentity"]] == [f"candidate-{won}" for won in winners]
    unversioned = {**lease, "metadata": {"name": "l", "namespace": cluster.namespace}}
    assert (await refused(cluster, "PUT", f"{leases}/l", unversioned))["code"] == 422


async def test_dry_runs_leave_nothing(cluster: clusters.Cluster, maps: str) -> None:
    made = await cluster.request("POST", f"{maps}?dryRun=All", {"metadata": {"name": "a"}})
    assert made["metadata"]["uid"]
    assert (await refused(cluster, "GET", f"{maps}/a"))["code"] == 404
    await create(cluster, maps, "a")
    await patch(cluster, f"{maps}/a?dryRun=All", {"data": {"k": "v"}})
    await cluster.request("DELETE", f"{maps}/a?dryRun=All")
    assert "data" not in await cluster.request("GET", f"{maps}/a")


async def test_pages_show_one_revision_whatever_happens_between_them(
    cluster: clusters.Cluster, maps: str
) -> None:
    for name in "abcde":
        await create(cluster, maps, name)
    first = await cluster.request("GET", f"{maps}?limit=2")
    given = len(await others(cluster, maps))  # kube-root-ca.crt, where the cluster has one
    assert first["metadata"]["remainingItemCount"] == 3 + given
    await cluster.request("DELETE", f"{maps}/d")
    await create(cluster, maps, "cc")
    await patch(cluster, f"{maps}/e", {"data": {"k": "v"}})
    token = first["metadata"]["continue"]
    second = await cluster.request("GET", f"{maps}?limit=2&continue={token}")
    third = await cluster.request(
        "GET", f"{maps}?limit=2&continue={second['metadata']['continue']}"
    )
    names = [[o["metadata"]["name"] for o in page["items"]] for page in (first, second, third)]
    assert names == [["a", "b"], ["c", "d"], ["e", *await others(cluster, maps)]]
    assert "data" not in third["items"][0]
    assert "continue" not in third["metadata"]
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1


@FAULTS
async def test_a_page_of_forgotten_history_is_expired(cluster: clusters.Cluster, maps: str) -> None:
    for name in "abc":
        await create(cluster, maps, name)
    token = (await cluster.request("GET", f"{maps}?limit=1"))["metadata"]["continue"]
    await create(cluster, maps, "d")
    await cluster.expire_history()
    status = await refused(cluster, "GET", f"{maps}?limit=1&continue={token}")
    assert (status["code"], status["reason"]) == (410, "Expired")


async def test_a_list_at_a_revision(cluster: clusters.Cluster, maps: str) -> None:
    made = await create(cluster, maps, "a")
    await create(cluster, maps, "b")
    version = made["metadata"]["resourceVersion"]
    exact = f"{maps}?resourceVersion={version}&resourceVersionMatch=Exact"
    found = await cluster.request("GET", f"{exact}&fieldSelector={clusters.OWN_MAPS}")
    assert [o["metadata"]["name"] for o in found["items"]] == ["a"]
    future = int(version) + 10_000_000
    assert (await refused(cluster, "GET", f"{maps}?resourceVersion={future}"))["code"] == 504


async def test_collections_are_deleted_by_selector(cluster: clusters.Cluster, maps: str) -> None:
    await create(cluster, maps, "a", app="x")
    await create(cluster, maps, "b", app="y")
    await cluster.request("DELETE", f"{maps}?labelSelector=app%3Dx")
    left = (await cluster.request("GET", f"{maps}?fieldSelector={clusters.OWN_MAPS}"))["items"]
    assert [o["metadata"]["name"] for o in left] == ["b"]


async def test_every_patch_format(cluster: clusters.Cluster, maps: str) -> None:
    await create(cluster, maps, "a")
    path = f"{maps}/a"
    json_patch: Any = [{"op": "add", "path": "/data", "value": {"j": "1"}}]
    await patch(cluster, path, json_patch, "application/json-patch+json")
    await patch(cluster, path, {"data": {"m": "2"}})
    strategic = {"metadata": {"finalizers": ["a.io/x"]}, "data": {"j": None}}
    await patch(cluster, path, strategic, "application/strategic-merge-patch+json")
    applied = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"s": "3"},
    }
    found = await patch(cluster, f"{path}?fieldManager=me", applied, "application/apply-patch+yaml")
    assert found["data"] == {"m": "2", "s": "3"}
    assert found["metadata"]["finalizers"] == ["a.io/x"]
    with pytest.raises(servers.RefusedError, match="fieldManager: Required value"):
        await patch(cluster, path, applied, "application/apply-patch+yaml")
    with pytest.raises(servers.RefusedError, match="UnsupportedMediaType"):
        await patch(cluster, path, applied, "application/json")
    await patch(cluster, path, {"metadata": {"finalizers": None}})


async def test_events_are_one_thing_under_two_names(cluster: clusters.Cluster) -> None:
    about = {"kind": "ConfigMap", "namespace": cluster.namespace, "name": "m"}
    path = f"namespaces/{cluster.namespace}/events"
    event = {
        "metadata": {"name": "e"},
        "involvedObject": about,
        "reason": "Why",
        "message": "words",
    }
    await cluster.request("POST", f"/api/v1/{path}", event)
    newer = f"/apis/events.k8s.io/v1/{path}"
    found = await cluster.request("GET", f"{newer}?fieldSelector=regarding.name%3Dm,reason%3DWhy")
    (shown,) = found["items"]
    assert (shown["note"], shown["regarding"]) == ("words", about)
    alone = await cluster.request("GET", f"{newer}/e")
    assert (alone["apiVersion"], alone["note"]) == ("events.k8s.io/v1", "words")
    await patch(cluster, f"/api/v1/{path}/e", {"message": "other words"})
    changed = await cluster.request("GET", f"{newer}/e")
    assert (changed["apiVersion"], changed["note"]) == ("events.k8s.io/v1", "other words")
    with pytest.raises(servers.RefusedError, match=r"message.*field is immutable"):
        await patch(cluster, f"{newer}/e", {"note": "more words"})


async def test_items_of_a_list_leave_it_to_the_list_to_say_what_they_are(
    cluster: clusters.Cluster, maps: str
) -> None:
    await create(cluster, maps, "a")
    found = await cluster.request("GET", f"{maps}?fieldSelector=metadata.name%3Da")
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert [set(item) for item in found["items"]] == [{"metadata"}]


async def test_a_pod_is_bound_in_one_write_and_once(cluster: clusters.Cluster) -> None:
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}
    await cluster.request("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "nowhere"}}
    await cluster.request("POST", f"{pods}/p/binding", body)
    pod = await cluster.request("GET", f"{pods}/p")
    (condition,) = pod["status"]["conditions"]
    assert (pod["spec"]["nodeName"], condition["type"]) == ("nowhere", "PodScheduled")
    assert condition["status"] == "True"
    with pytest.raises(servers.RefusedError, match="already assigned to node") as refused:
        await cluster.request("POST", f"{pods}/p/binding", body)
    assert refused.value.status == 409
    await cluster.request("DELETE", f"{pods}/p?gracePeriodSeconds=0")


async def test_a_deleted_definition_is_served_no_more(cluster: clusters.Cluster) -> None:
    group = f"{cluster.namespace}.x.io"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await cluster.request("POST", crds, {"metadata": {"name": f"things.{group}"}, "spec": spec})
    things = f"/apis/{group}/v1/things"
    await cluster.wait_for(things, bool, "the new kind, which is served once it is established")
    head = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "t"}}
    with pytest.raises(servers.RefusedError, match="Object 'Kind' is missing"):
        await cluster.request("POST", things, {**head, "kind": ""})
    made = await cluster.request("POST", things, {**head, "any": {"thing": [1]}})
    assert (made["kind"], made["any"]) == ("Thing", {"thing": [1]})
    async with streams.watch(cluster, things) as stream:
        assert await stream.take(1) == [("ADDED", "t")]
        await cluster.request("DELETE", f"{crds}/things.{group}")
        assert [kind for kind, _ in await stream.rest()] == ["DELETED"]
    await cluster.wait_for(things, lambda found: found is None, "no such path any more")


async def test_sqlite_keeps_every_acknowledged_write_over_kill(
    cluster_factory: clusters.Factory,
) -> None:
    own = await cluster_factory(store="sqlite")
    maps = f"/api/v1/namespaces/{own.namespace}/configmaps"
    acknowledged: set[str] = set()

    async def write(first: int) -> None:
        for number in range(first, first + 1000):
            await create(own, maps, f"m-{number}")
            acknowledged.add(f"m-{number}")

    writers = [asyncio.create_task(write(1000 * n)) for n in range(4)]

    async def enough() -> bool:
        return len(acknowledged) >= 200

    await waiting.until(enough, "200 acknowledged writes")
    seen = await own.request("GET", maps)
    own.server.process.kill()
    await asyncio.gather(*writers, return_exceptions=True)
    await own.server.start()
    found = await own.request("GET", maps)
    names = {o["metadata"]["name"] for o in found["items"]}
    assert acknowledged <= names
    assert {o["metadata"]["name"] for o in seen["items"]} <= names, "what was shown stays"
    assert int(found["metadata"]["resourceVersion"]) >= int(seen["metadata"]["resourceVersion"])
    again = await create(own, maps, "after")
    assert int(again["metadata"]["resourceVersion"]) > int(found["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        pytest.param(["--store=disk"], 2, "--store", id="unknown store"),
        pytest.param([], 2, "--dir is required", id="no folder"),
        pytest.param(["--dir=DIR", "--port=PORT"], 1, "cannot listen on --port=", id="port taken"),
        pytest.param(["--dir=DIR", "--store=sqlite"], 1, "objects.db", id="no database"),
    ],
)
async def test_a_wrong_start_names_what_is_wrong(
    cluster: clusters.Cluster, short_dir: pathlib.Path, words: list[str], code: int, complaint: str
) -> None:
    (short_dir / "objects.db").write_text("this is no database")
    values = {"DIR": str(short_dir), "PORT": str(cluster.server.access.port)}
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    process = cluster.processes.spawn(["devcluster", *words])
    assert await process.wait() == code
    assert complaint in process.output()
