"""Watch streams: nothing is lost, resumed or not; what cannot be resumed says so."""

import json
import sys
from typing import Any

import pytest
from support import cluster as clusters
from support import fanout, processes, servers, streams, waiting

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

MERGE = "application/merge-patch+json"


@pytest.fixture
def maps(cluster: clusters.Cluster) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/configmaps"


async def create(cluster: clusters.Cluster, maps: str, name: str, **labels: str) -> str:
    body = {"metadata": {"name": name, "labels": labels}}
    made = await cluster.request("POST", maps, body)
    return str(made["metadata"]["resourceVersion"])


async def label(cluster: clusters.Cluster, path: str, **labels: str | None) -> Any:
    body = {"metadata": {"labels": labels}}
    return await cluster.request("PATCH", path, body, content_type=MERGE)


async def test_a_watch_tells_what_is_there_and_what_happens(
    cluster: clusters.Cluster, maps: str
) -> None:
    await create(cluster, maps, "a")
    async with streams.watch(cluster, maps, fieldSelector=clusters.OWN_MAPS) as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        await create(cluster, maps, "b")
        changed = await label(cluster, f"{maps}/a", x="y")
        await cluster.request("DELETE", f"{maps}/a")
        assert await stream.take(1) == [("ADDED", "b")]
        assert await stream.next() == ("MODIFIED", changed)
        kind, last = await stream.next()
        assert (kind, last["metadata"]["labels"]) == ("DELETED", {"x": "y"})
        version = int(last["metadata"]["resourceVersion"])
        assert version > int(changed["metadata"]["resourceVersion"])


async def test_a_watch_resumes_where_it_was(cluster: clusters.Cluster, maps: str) -> None:
    await create(cluster, maps, "a")
    version = await create(cluster, maps, "b")
    await create(cluster, maps, "c")
    async with streams.watch(cluster, maps, resourceVersion=version) as stream:
        assert await stream.take(1) == [("ADDED", "c")]


@FAULTS
async def test_a_watch_of_forgotten_history_is_expired(
    cluster: clusters.Cluster, maps: str
) -> None:
    version = await create(cluster, maps, "a")
    await create(cluster, maps, "b")
    await cluster.expire_history()
    async with streams.watch(cluster, maps, resourceVersion=version) as stream:
        ((kind, status),) = await stream.rest()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")


@FAULTS
async def test_a_watch_that_is_up_to_date_outlives_the_forgetting(
    cluster: clusters.Cluster, maps: str
) -> None:
    async with streams.watch(cluster, maps, fieldSelector=clusters.OWN_MAPS) as stream:
        await create(cluster, maps, "a")
        await stream.take(1)
        await cluster.expire_history()
        await create(cluster, maps, "b")
        assert await stream.take(1) == [("ADDED", "b")]


async def test_selected_objects_come_and_go(cluster: clusters.Cluster, maps: str) -> None:
    await create(cluster, maps, "a", app="x")
    await create(cluster, maps, "b")
    async with streams.watch(cluster, maps, labelSelector="app=x") as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        left = await label(cluster, f"{maps}/a", app=None)
        await label(cluster, f"{maps}/b", app="x")
        kind, last = await stream.next()
        assert (kind, last["metadata"]["labels"]) == ("DELETED", {"app": "x"})
        assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        assert await stream.take(1) == [("ADDED", "b")]


async def test_one_object_is_watched_by_its_name(cluster: clusters.Cluster, maps: str) -> None:
    await create(cluster, maps, "a")
    await create(cluster, maps, "b")
    async with streams.watch(cluster, maps, fieldSelector="metadata.name=b") as stream:
        assert await stream.take(1) == [("ADDED", "b")]
        await label(cluster, f"{maps}/a", x="1")
        await label(cluster, f"{maps}/b", x="1")
        assert await stream.take(1) == [("MODIFIED", "b")]


async def test_a_streamed_list_ends_with_its_bookmark(cluster: clusters.Cluster, maps: str) -> None:
    await create(cluster, maps, "a")
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    query["fieldSelector"] = clusters.OWN_MAPS
    async with streams.watch(cluster, maps, resourceVersionMatch="NotOlderThan", **query) as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        kind, mark = await stream.next()
        assert (kind, mark["kind"]) == ("BOOKMARK", "ConfigMap")
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        version = mark["metadata"]["resourceVersion"]
        await create(cluster, maps, "b")
        assert await stream.take(1) == [("ADDED", "b")]
    async with streams.watch(cluster, maps, resourceVersion=version) as stream:
        assert await stream.take(1) == [("ADDED", "b")]
    with pytest.raises(servers.RefusedError, match="NotOlderThan"):
        await cluster.request("GET", f"{maps}?watch=1&sendInitialEvents=true")


async def test_a_watch_ends_in_time_with_a_bookmark_to_resume_from(
    cluster: clusters.Cluster, maps: str
) -> None:
    # Kubernetes sends it about two seconds before the end; a busy one has none in a last second.
    query = {"timeoutSeconds": "3", "allowWatchBookmarks": "true"}
    async with streams.watch(cluster, maps, **query) as stream:
        version = await create(cluster, maps, "a")
        (*_, (kind, mark)) = await stream.rest()
    assert kind == "BOOKMARK"
    assert int(mark["metadata"]["resourceVersion"]) >= int(version)


@FAULTS
async def test_dropped_watches_break_off(cluster: clusters.Cluster, maps: str) -> None:
    async with streams.watch(cluster, maps, fieldSelector=clusters.OWN_MAPS) as stream:
        await cluster.drop_watches()
        assert await stream.rest() == []


async def test_a_watch_can_be_shown_as_a_table(cluster: clusters.Cluster, maps: str) -> None:
    await create(cluster, maps, "a")
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    query = {"fieldSelector": clusters.OWN_MAPS}
    async with streams.watch(cluster, maps, accept=accept, **query) as stream:
        kind, table = await stream.next()
    assert (kind, table["kind"]) == ("ADDED", "Table")
    assert table["rows"][0]["cells"][:2] == ["a", 0]


@pytest.mark.embedded(reason="is about the embedded server's pace")
async def test_ten_watchers_see_ten_thousand_events_each(
    cluster_factory: clusters.Factory,
) -> None:
    own = await cluster_factory()
    command = [sys.executable, fanout.__file__, str(own.server.directory)]
    result = json.loads(await processes.run([*command, "10000", "10"], timeout=90))
    assert result["sequences"] == 1, "every watcher sees the same events in the same order"
    assert result["events"] == 10_000
    assert result["is_ordered"]


@FAULTS
async def test_a_watcher_that_does_not_read_is_told_to_list_again(
    cluster_factory: clusters.Factory,
) -> None:
    own = await cluster_factory()
    maps = f"/api/v1/namespaces/{own.namespace}/configmaps"
    await own.request("POST", maps, {"metadata": {"name": "big"}})
    async with streams.watch(own, maps) as stream, own.server.session() as session:
        await stream.take(1)
        # Far more than the sockets between us hold, so that the server has to stop writing.
        for number in range(120):
            body = {"data": {"k": f"{number}" + "x" * 200_000}}
            async with session.patch(
                f"{maps}/big", json=body, headers={"Content-Type": MERGE}
            ) as answer:
                assert answer.status == 200
        await own.expire_history()
        events = await stream.rest()
    assert len(events) < 120
    kind, status = events[-1]
    assert (kind, status["code"]) == ("ERROR", 410)


@pytest.mark.embedded(reason="needs counters of reads, which an audit log of writes has not")
async def test_history_is_bounded_not_memory(cluster: clusters.Cluster, maps: str) -> None:
    """A stopped reader ends with its connection, and the server goes on."""
    await create(cluster, maps, "a")
    async with streams.watch(cluster, maps) as stream:
        await stream.take(1)
        stream.answer.close()

    async def counted() -> bool:
        rows = await cluster.requests()
        return any(row.verb == "watch" and row.resource == "configmaps" for row in rows)

    await waiting.until(counted, "the end of the watch in the counters")
