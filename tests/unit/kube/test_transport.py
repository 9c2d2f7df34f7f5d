raise SystemExit("LEAD to kube-cpu: read /work/main/NOTE-FROM-LEAD-to-kube-cpu.md before going on; remove this line")
"""The transport against servers and proxies on real sockets."""

import asyncio
import contextlib
import dataclasses
import pathlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from bitts.kube import config as configuration
from bitts.kube import connections, credentials, errors, transport
from support import pki, waiting

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server whose connections ``handler`` answers; yields its port."""

    tasks: set[asyncio.Task[object]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await handler(reader, writer)
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(
    server: str,
    context: ssl.SSLContext | None = None,
    *,
    proxy: str | None = None,
    server_name: str | None = None,
) -> AsyncIterator[transport.Transport]:
    config = configuration.Config(
        server, "a test", credentials.Fixed(), proxy=proxy, server_name=server_name
    )
    wire = transport.Transport(config, context, "x/1")
    try:
        yield wire
    finally:
        await wire.close()


async def head(reader: asyncio.StreamReader) -> list[str]:
    """The lines of a request without a body."""
    return (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]


class Answering:
    """Answers each request with ``answer`` and remembers what was asked."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.connections = 0
        self.ended = 0
        self.heads: list[list[str]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append(await head(reader))
                writer.write(self.answer)
        finally:
            self.ended += 1


async def test_a_connection_serves_one_request_after_another() -> None:
    server = Answering()
    async with serving(server) as port, connected(f"http://127.0.0.1:{port}/base/") as wire:
        for _ in range(3):
            assert await wire.exchange("GET", "/a?b=1", timeout=5) == b"{}"
        await asyncio.gather(*(wire.exchange("GET", "/c", timeout=5) for _ in range(4)))
        assert server.connections == 4
    assert server.heads[0][:2] == ["GET /base/a?b=1 HTTP/1.1", f"Host: 127.0.0.1:{port}"]


@pytest.mark.parametrize(
    "answer",
    [OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK[:-2] + b"{}x", b"SSH\r\n\r\n"],
    ids=["closing", "too-much", "no-http"],
)
async def test_a_connection_that_cannot_be_used_again_is_not(answer: bytes) -> None:
    server = Answering(answer)
    async with serving(server) as port, connected(f"http://127.0.0.1:{port}") as wire:
        for _ in range(2):
            with contextlib.suppress(errors.AnswerLost):
                await wire.exchange("GET", "/", timeout=5)
        assert server.connections == 2
        await waiting.until(lambda: server.ended == 2, "both connections are closed", 5)


async def test_a_kept_connection_that_ends_meanwhile_is_replaced() -> None:
    served = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await head(reader)
        writer.write(OK)
        await writer.drain()
        served += 1

    async with serving(once) as port, connected(f"http://127.0.0.1:{port}") as wire:
        for count in range(1, 4):
            await wire.exchange("PUT", "/", timeout=5)
            assert served == count
            await waiting.until(lambda: not wire.kept, "the end is noticed", 5)


async def test_connections_that_nobody_needs_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEP_ALIVE", 0.01)
    server = Answering()
    async with serving(server) as port, connected(f"http://127.0.0.1:{port}") as wire:
        await asyncio.gather(*(wire.exchange("GET", "/", timeout=5) for _ in range(3)))
        await waiting.until(lambda: server.ended == 3, "all are closed", 5)


async def test_who_gives_up_takes_the_connection_along() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        asked.set()
        await reader.read()
        ended.set()

    async with serving(silent) as port, connected(f"http://127.0.0.1:{port}") as wire:
        task = asyncio.create_task(wire.exchange("GET", "/", timeout=60))
        await asked.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await asyncio.wait_for(ended.wait(), 60.0)


async def test_a_stream_that_speaks_much_is_read_in_larger_pieces() -> None:
    lines = [b"%d\n" % number for number in range(500)]

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM)
        for line in lines:
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    async with (
        serving(talkative) as port,
        connected(f"http://127.0.0.1:{port}") as wire,
        wire.stream("/", silence=5) as stream,
    ):
        pieces = [piece async for piece in stream]
    assert b"".join(pieces) == b"".join(lines)
    assert len(pieces) < 100


async def test_a_stream_larger_than_what_is_read_ahead_comes_whole() -> None:
    piece = b"x" * 300_000

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM)
        for _ in range(20):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with (
        serving(large) as port,
        connected(f"http://127.0.0.1:{port}") as wire,
        wire.stream("/", silence=5) as stream,
    ):
        total = 0
        async for data in stream:
            total += len(data)
            await asyncio.sleep(0)
    assert total == 20 * len(piece)


async def test_an_answer_without_a_length_ends_with_its_connection(tmp_path: pathlib.Path) -> None:
    async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(OK.replace(b"Content-Length: 2\r\n", b""))
        await writer.drain()
        if cut:
            writer.transport.abort()

    theirs, ours = await asyncio.to_thread(contexts, tmp_path)
    cut = False
    async with serving(ends) as port, connected(f"http://127.0.0.1:{port}") as wire:
        assert await wire.exchange("GET", "/", timeout=5) == b"{}"
    async with (
        serving(ends, theirs) as port,
        connected(f"https://127.0.0.1:{port}", ours, server_name="api") as wire,
    ):
        assert await wire.exchange("GET", "/", timeout=5) == b"{}"
        cut = True  # without TLS's own end, somebody else may have ended it
        with pytest.raises(errors.AnswerLost):
            await wire.exchange("GET", "/", timeout=5)


async def test_large_bodies_go_both_ways_by_tls(tmp_path: pathlib.Path) -> None:
    body = bytes(range(256)) * 4000

    async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        received = await reader.readexactly(len(body))
        writer.write(OK.replace(b"2\r\n\r\n{}", b"%d\r\n\r\n" % len(body)) + received[::-1])

    theirs, ours = await asyncio.to_thread(contexts, tmp_path)
    async with (
        serving(echoes, theirs) as port,
        connected(f"https://127.0.0.1:{port}", ours, server_name="api") as wire,
    ):
        assert await wire.exchange("POST", "/", timeout=20, body=body) == body[::-1]


async def test_silence_and_the_end_of_a_stream_are_told() -> None:
    cut = asyncio.Event()

    async def begins(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM + b"1\r\nx\r\n")
        await cut.wait()

    async with serving(begins) as port, connected(f"http://127.0.0.1:{port}") as wire:
        async with wire.stream("/", silence=0.1) as stream:
            assert await anext(stream) == b"x"
            with pytest.raises(errors.AnswerLost, match="time limit"):
                await anext(stream)
        async with wire.stream("/", silence=60) as stream:
            assert await anext(stream) == b"x"
            cut.set()
            with pytest.raises(errors.AnswerLost, match="connection lost"):
                await anext(stream)


@dataclasses.dataclass
class Proxy:
    """A proxy that passes bytes on after CONNECT, or refuses with a status."""

    refuse: bytes = b""
    heads: list[list[str]] = dataclasses.field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await head(reader))
        if self.refuse:
            writer.write(b"HTTP/1.1 " + self.refuse + b"\r\n\r\n")
            return
        host, _, port = self.heads[-1][0].split()[1].rpartition(":")
        up, down = await asyncio.open_connection("127.0.0.1" if host == "api" else host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = asyncio.create_task(_pass(up, writer))
        try:
            await _pass(reader, down)
        finally:
            back.cancel()
            down.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)


def contexts(folder: pathlib.Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's, for the name api."""
    issued = pki.Authority(folder).issue("api")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(issued.certificate, issued.key)
    return server, ssl.create_default_context(cafile=issued.authority)


async def test_tls_goes_through_a_proxy(tmp_path: pathlib.Path) -> None:
    theirs, ours = await asyncio.to_thread(contexts, tmp_path)
    server, proxy = Answering(), Proxy()
    async with serving(server, theirs) as port, serving(proxy) as way:
        proxied = f"http://us%40er:pw@127.0.0.1:{way}"
        async with connected(f"https://api:{port}", ours, proxy=proxied) as wire:
            for _ in range(2):
                assert await wire.exchange("GET", "/", timeout=5) == b"{}"
    assert proxy.heads == [
        [
            f"CONNECT api:{port} HTTP/1.1",
            f"Host: api:{port}",
            "Proxy-Authorization: Basic dXNAZXI6cHc=",
        ]
    ]
    assert not any("Proxy" in line for line in server.heads[0])


async def test_a_proxy_that_refuses_is_no_connection(tmp_path: pathlib.Path) -> None:
    _, ours = await asyncio.to_thread(contexts, tmp_path)
    async with serving(Proxy(b"407 Proxy Authentication Required")) as way:
        proxied = connected("https://api:1", ours, proxy=f"http://127.0.0.1:{way}")
        async with proxied as wire:
            with pytest.raises(errors.Unreachable, match="the proxy answers with status 407"):
                await wire.exchange("POST", "/", timeout=5, body=b"{}")


async def test_plain_requests_name_the_server_to_a_proxy() -> None:
    proxy = Answering()
    async with serving(proxy) as way:
        proxied = connected("http://api:7", proxy=f"http://a:b@127.0.0.1:{way}")
        async with proxied as wire:
            assert await wire.exchange("GET", "/x", timeout=5) == b"{}"
    assert proxy.heads[0][:3] == [
        "GET http://api:7/x HTTP/1.1",
        "Host: api:7",
        "Proxy-Authorization: Basic YTpi",
    ]


async def test_a_certificate_has_to_be_for_the_server(tmp_path: pathlib.Path) -> None:
    theirs, ours = await asyncio.to_thread(contexts, tmp_path)
    async with serving(Answering(), theirs) as port:
        async with connected(f"https://127.0.0.1:{port}", ours, server_name="api") as wire:
            assert await wire.exchange("GET", "/", timeout=5) == b"{}"
        stranger = await asyncio.to_thread(ssl.create_default_context)
        for context in (ours, stranger):
            async with connected(f"https://127.0.0.1:{port}", context) as wire:
                with pytest.raises(errors.Unreachable, match="certificate-authority") as caught:
                    await wire.exchange("GET", "/", timeout=5)
            assert caught.value.reason == "Certificate"


async def test_what_cannot_be_used_is_said_before_anything_is_sent() -> None:
    usable = configuration.Config("http://a", "a test", credentials.Fixed())
    for config in (
        dataclasses.replace(usable, server="ftp://a"),
        dataclasses.replace(usable, proxy="socks5://b"),
        dataclasses.replace(usable, proxy="https://b"),
        dataclasses.replace(usable, headers=(("Impersonate-User", "a\nb"),)),
    ):
        with pytest.raises(configuration.ConfigError, match="a test: "):
            transport.Transport(config, None, "x/1")
