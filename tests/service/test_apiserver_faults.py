"""Faults of the API server that tests ask for, as clients meet them."""

import asyncio
from typing import Any

import aiohttp
import pytest
from support import cluster as clusters
from support import servers

pytestmark = pytest.mark.embedded(reason="injects faults into the API server")


@pytest.fixture
def maps(cluster: clusters.Cluster) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/configmaps"


async def create(cluster: clusters.Cluster, maps: str, name: str) -> Any:
    return await cluster.request("POST", maps, {"metadata": {"name": name}})


async def test_injected_faults_strike_as_ordered(cluster: clusters.Cluster, maps: str) -> None:
    match = {"verb": "create", "resource": "configmaps"}
    await cluster.faults(match=match, action="status", code=429, retryAfter=1, times=1)
    async with cluster.server.session() as session:
        body = {"metadata": {"name": "a"}}
        async with session.post(maps, json=body) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        async with session.post(maps, json=body) as answer:
            assert answer.status == 201
    await cluster.faults(match=match, action="drop", times=1)
    with pytest.raises(aiohttp.ClientError):
        await create(cluster, maps, "b")
    await cluster.faults(match=match, action="drop_after", times=1)
    with pytest.raises(aiohttp.ClientError):
        await create(cluster, maps, "c")
    found = await cluster.request("GET", f"{maps}?fieldSelector={clusters.OWN_MAPS}")
    names = [one["metadata"]["name"] for one in found["items"]]
    assert names == ["a", "c"], "a dropped request did nothing, a lost answer did"
    with pytest.raises(servers.RefusedError, match="action must be one of"):
        await cluster.faults(match=match, action="explode")
    with pytest.raises(servers.RefusedError, match="unknown fields of a fault: who"):
        await cluster.faults(match={"who": "me"}, action="drop")


async def test_a_delay_holds_back_the_requests_that_it_matches(
    cluster: clusters.Cluster, maps: str
) -> None:
    match = {"verb": "create", "resource": "configmaps"}
    await cluster.faults(match=match, action="delay", delay=60, times=1)
    both = [asyncio.create_task(create(cluster, maps, name)) for name in "ab"]
    done, held = await asyncio.wait(both, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    (made,), (waits,) = done, held
    found = await cluster.request("GET", f"{maps}?fieldSelector={clusters.OWN_MAPS}")
    assert [one["metadata"]["name"] for one in found["items"]] == [
        made.result()["metadata"]["name"]
    ]
    assert not waits.done()
    waits.cancel()
    await cluster.faults(match=match, action="delay", delay=0.001, times=1)
    assert (await create(cluster, maps, "c"))["metadata"]["name"] == "c"
