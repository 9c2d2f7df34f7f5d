"""The HTTP endpoint, asked over a real socket."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping

import aiohttp
import pytest
from bitts.core import dumps, httplistener, ledger, metrics, serving, workqueue
from bitts.core.process import ExitError
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from support.virtualtime import VirtualClock


class Endpoint:
    """A started server and a client of it."""

    def __init__(self, server: serving.HttpServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    async def get(
        self, path: str, *, method: str = "GET", **headers: str
    ) -> tuple[int, str, Mapping[str, str]]:
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with self._session.request(method, url, headers=headers) as response:
            return response.status, await response.text(), response.headers


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    server = serving.HttpServer("127.0.0.1:0")
    await server.start()
    async with aiohttp.ClientSession(skip_auto_headers=["Accept-Encoding"]) as session:
        yield Endpoint(server, session)
    await server.stop()


async def test_metrics(endpoint: Endpoint) -> None:
    registry = metrics.Registry()
    registry.gauge("x", "y").set(1)
    endpoint.server.metrics("/metrics", registry)
    status, text, headers = await endpoint.get("/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "\nx 1\n" in text
    assert "Content-Encoding" not in headers
    status, text, headers = await endpoint.get("/metrics", **{"Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert "\nx 1\n" in text


async def test_scrapes_are_counted_as_go_s_handler_does(endpoint: Endpoint) -> None:
    registry = metrics.Registry(process=False)
    broken = False

    class Fragile(Collector):
        def collect(self) -> list[Metric]:
            if broken:
                raise RuntimeError("no figures")
            return []

    registry.register(Fragile())
    endpoint.server.metrics("/metrics", registry)
    _, text, _ = await endpoint.get("/metrics")
    assert 'promhttp_metric_handler_requests_total{code="200"} 0\n' in text
    assert 'promhttp_metric_handler_requests_total{code="503"} 0\n' in text
    assert "promhttp_metric_handler_requests_in_flight 1\n" in text
    broken = True
    assert (await endpoint.get("/metrics"))[0] == 500
    broken = False
    _, text, _ = await endpoint.get("/metrics")
    assert 'promhttp_metric_handler_requests_total{code="200"} 1\n' in text
    assert 'promhttp_metric_handler_requests_total{code="500"} 1\n' in text


async def test_the_health_path_exists_once_the_election_has_begun(endpoint: Endpoint) -> None:
    healthy = True
    assert (await endpoint.get("/healthz/leader-election"))[0] == 404
    endpoint.server.leader_election(lambda: healthy)
    assert (await endpoint.get("/healthz/leader-election"))[:2] == (200, "ok")
    healthy = False
    status, text, _ = await endpoint.get("/healthz/leader-election")
    assert (status, text) == (500, "the Lease was not renewed in time\n")


async def test_nothing_else_is_served(endpoint: Endpoint) -> None:
    for path in ("/", "/metrics", "/debug/bitts/tasks"):
        assert (await endpoint.get(path))[0] == 404


async def test_the_method_does_not_matter_as_with_go_s_handlers(endpoint: Endpoint) -> None:
    endpoint.server.leader_election(lambda: True)
    assert (await endpoint.get("/healthz/leader-election", method="POST"))[0] == 200
    assert (await endpoint.get("/healthz/leader-election", method="HEAD"))[:2] == (200, "")


async def test_a_failing_handler_is_an_internal_error(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(query: Mapping[str, str]) -> httplistener.Reply:
        raise KeyError("secret detail")

    endpoint.server.route("/broken", broken)
    assert (await endpoint.get("/broken"))[:2] == (500, "internal error, see the log\n")
    assert len(caplog.records) == 1


async def test_dumps(endpoint: Endpoint) -> None:
    clock = VirtualClock()
    queue = workqueue.WorkQueue("claims", clock=clock)
    book = ledger.Ledger(finished=2_000)
    endpoint.server.dumps(queues=[queue], ledger=book)
    queue.add("a")
    queue.retry("b")
    clock.advance(0.25)
    book.decided("claims", "shop/cart", "CreateVolume", "no volume yet", error="")
    book.decided("claims", "shop/till", "CreateVolume", "no volume yet", error="")
    waiter = asyncio.create_task(asyncio.Event().wait(), name="a waiter")
    status, text, _ = await endpoint.get("/debug/bitts/tasks")
    assert status == 200
    assert re.search(r"^a waiter\n  .*locks\.py:\d+ wait$", text, re.MULTILINE)
    waiter.cancel()
    assert (await endpoint.get("/debug/bitts/queues"))[1] == (
        "claims: 1 ready, 0 in work, 1 delayed, 1 failing, next waits 0.250s\n"
    )
    assert (await endpoint.get("/debug/bitts/decisions?key=cart"))[1] == (
        "claims shop/cart finished: CreateVolume (no volume yet)"
        " failures=0 retry_at=None error=''\n"
    )


def test_a_long_dump_is_cut() -> None:
    book = ledger.Ledger(finished=2_000)
    for number in range(1_500):
        book.decided("claims", f"claim {number}", "Create", "x")
    lines = dumps.decisions(book).splitlines()
    assert (len(lines), lines[-1]) == (1_001, "... and 500 more")


async def test_an_address_in_use_ends_the_process_naming_the_flag(endpoint: Endpoint) -> None:
    address = f"127.0.0.1:{endpoint.server.port}"
    with pytest.raises(ExitError) as caught:
        await serving.HttpServer(address, flag="--metrics-address").start()
    assert caught.value.code == 1
    told = f"cannot listen on --metrics-address={address}: Address already in use"
    assert str(caught.value).startswith(told)


async def test_a_host_that_does_not_exist_ends_the_process() -> None:
    with pytest.raises(ExitError, match=r"cannot listen on --http-endpoint=nowhere\.invalid:0"):
        await serving.HttpServer("nowhere.invalid:0").start()


@pytest.mark.parametrize("address", ["8080", "localhost", "localhost:http", ":99999", ""])
async def test_an_address_without_port_is_refused(address: str) -> None:
    with pytest.raises(ExitError, match="--http-endpoint must be host:port or :port"):
        await serving.HttpServer(address).start()


@pytest.mark.parametrize("address", [":0", "[::1]:0", "localhost:0"])
async def test_addresses(address: str) -> None:
    server = serving.HttpServer(address)
    await server.start()
    assert server.port > 0
    await server.stop()
    await server.stop()


async def test_a_server_that_is_not_started_has_no_port() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        _ = serving.HttpServer(":0").port
