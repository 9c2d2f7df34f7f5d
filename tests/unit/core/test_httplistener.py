"""The small HTTP listener: heads as data, then connections on real sockets."""

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import AsyncIterator, Mapping

import aiohttp
import pytest
from bitts.core import httplistener
from bitts.core.httplistener import BadRequest, Reply
from bitts.core.process import ExitError
from hypothesis import given
from hypothesis import strategies as st
from support import waiting


def parse(*lines: str) -> httplistener.Request:
    return httplistener.parse("\r\n".join([*lines, "", ""]).encode("latin-1"))


def test_a_probe_of_the_kubelet_is_understood() -> None:
    found = parse("GET /healthz?a=1&b= HTTP/1.1", "Host: 10.0.0.1:9808", "Connection: close")
    assert found == httplistener.Request("/healthz", {"a": "1"}, is_head=False, keeps=False)


@pytest.mark.parametrize(
    ("lines", "keeps"),
    [
        pytest.param(["GET / HTTP/1.1"], True, id="1.1 keeps"),
        pytest.param(["GET / HTTP/1.1", "connection: CLOSE"], False, id="1.1 asked to close"),
        pytest.param(["GET / HTTP/1.0"], False, id="1.0 closes"),
        pytest.param(["GET / HTTP/1.0", "Connection: Keep-Alive"], True, id="1.0 asked to keep"),
        pytest.param(["PUT / HTTP/1.1", "Content-Length: 5"], False, id="a body follows"),
        pytest.param(["PUT / HTTP/1.1", "Transfer-Encoding: chunked"], False, id="chunks follow"),
    ],
)
def test_a_connection_is_kept_as_its_client_wishes(lines: list[str], keeps: bool) -> None:
    assert parse(*lines).keeps is keeps


@pytest.mark.parametrize(
    "lines",
    [
        ["GET /"],
        ["GET / HTTP/2"],
        ["PRI * HTTP/2.0"],
        ["\x16\x03\x01"],
        ["GET / HTTP/1.1", "no colon"],
        ["GET / HTTP/1.1", ": no name"],
        ["GET / HTTP/1.1", " folded: line"],
        ["GET http://[bad HTTP/1.1"],
    ],
)
def test_what_is_no_request_is_refused(lines: list[str]) -> None:
    with pytest.raises(BadRequest):
        parse(*lines)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(head: bytes) -> None:
    with contextlib.suppress(BadRequest):
        httplistener.parse(head)


async def ok(query: Mapping[str, str]) -> Reply:
    return Reply("ok")


async def broken(query: Mapping[str, str]) -> Reply:
    raise KeyError("detail")


@pytest.fixture
async def listener() -> AsyncIterator[httplistener.Listener]:
    made = httplistener.Listener("127.0.0.1:0")
    made.route("/healthz", ok)
    made.route("/broken", broken)
    await made.start()
    yield made
    await made.stop()
    await made.stop()


@contextlib.asynccontextmanager
async def connected(
    listener: httplistener.Listener,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_client_library_is_served_and_its_connection_kept(
    listener: httplistener.Listener,
) -> None:
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"http://127.0.0.1:{listener.port}"
        for method, path, status, text in [
            ("GET", "/healthz", 200, "ok"),
            ("HEAD", "/healthz", 200, ""),
            ("OPTIONS", "/healthz", 200, "ok"),
            ("GET", "/", 404, "404 page not found\n"),
            ("GET", "/broken", 500, "internal error, see the log\n"),
        ]:
            async with session.request(method, url + path) as response:
                assert (response.status, await response.text()) == (status, text)
                assert response.headers["Connection"] == "keep-alive"


async def test_a_wrong_request_is_told_and_ends_the_connection(
    listener: httplistener.Listener,
) -> None:
    for sent, status in [
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000, b"431 Request Header Fields Too Large"),
    ]:
        async with connected(listener) as (reader, writer):
            writer.write(sent)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 " + status)


async def test_silent_connections_make_room(listener: httplistener.Listener) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first, *_ = [
            await stack.enter_async_context(connected(listener))
            for _ in range(httplistener.MOST_CONNECTIONS)
        ]
        async with connected(listener) as (reader, writer):
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert (await reader.read()).endswith(b"\r\n\r\nok")
        with contextlib.suppress(ConnectionError):
            assert await first[0].read() == b""


async def test_stopping_ends_connections(listener: httplistener.Listener) -> None:
    async with connected(listener) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"ok")
        await listener.stop()
        assert await reader.read() == b""
    with pytest.raises(RuntimeError, match="not started"):
        _ = listener.port


async def test_a_unix_socket_is_served_too(short_dir: pathlib.Path) -> None:
    path = str(short_dir / "http.sock")
    opened = socket.socket(socket.AF_UNIX)
    opened.bind(path)
    made = httplistener.Listener(f"unix://{path}")
    made.route("/healthz", ok)
    await made.start(opened)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"ok")
    writer.close()
    await made.stop()


async def test_an_address_in_use_ends_the_process_and_says_what_to_do(
    listener: httplistener.Listener,
) -> None:
    address = f"127.0.0.1:{listener.port}"
    with pytest.raises(ExitError) as caught:
        await httplistener.Listener(address, flag="--health-port").start()
    assert caught.value.code == 1
    assert str(caught.value) == (
        f"cannot listen on --health-port={address}: Address already in use"
        " (pods in the host's network share its ports): choose another port"
    )


async def test_a_client_that_leaves_is_forgotten(listener: httplistener.Listener) -> None:
    async with connected(listener) as (_, writer):
        writer.write(b"GET /hea")
        await writer.drain()
    await waiting.until(lambda: not listener._open, "the connection's end")


@pytest.mark.parametrize("address", ["8080", "localhost", "localhost:http", ":99999", ""])
def test_an_address_without_port_is_refused(address: str) -> None:
    with pytest.raises(ExitError, match="--x must be host:port or :port"):
        httplistener.host_and_port(address, "--x")
