"""Servers that are late, frozen, gone or restarted, and what a channel makes of them."""

import asyncio
import pathlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from bitts.rpc import channel, server
from bitts.rpc.codes import Code, RpcError
from support import rpcs, waiting
from support.rpcs import PREFIX, Text

Answer = Callable[[asyncio.StreamWriter], None]


def listening(path: str, backlog: int = 10) -> socket.socket:
    """Listen without ever accepting: what a frozen process looks like."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened.bind(path)
    opened.listen(backlog)
    return opened


async def echo(opened: channel.Channel, timeout: float = 5.0) -> Text:
    return await opened.unary(f"{PREFIX}Echo", Text("x"), Text, timeout=timeout)


async def test_connecting_waits_for_the_server(path: str, sample: rpcs.Sample) -> None:
    opened = channel.Channel(f"unix://{path}")
    waits = asyncio.create_task(opened.connect(10.0))
    await waiting.until(lambda: not opened.is_connected, "the first try fails")
    running = server.Server([sample], path)
    await running.start()
    await waits
    assert opened.is_connected
    await opened.close()
    await running.stop()


async def test_connecting_gives_up_and_says_why(path: str) -> None:
    with pytest.raises(RpcError) as caught:
        await channel.Channel(path).connect(0.1)
    assert caught.value.code is Code.UNAVAILABLE
    assert caught.value.message == (
        f"no connection within 0.1 s: cannot connect to {path}: No such file or directory"
    )


async def test_a_call_without_a_connection_fails_at_once(path: str) -> None:
    with pytest.raises(RpcError, match="No such file or directory") as caught:
        await echo(channel.Channel(path), timeout=30.0)
    assert caught.value.code is Code.UNAVAILABLE


async def test_a_file_in_the_socket_s_place_is_unavailable(path: str) -> None:
    pathlib.Path(path).touch()  # noqa: ASYNC240 - the test's own, tiny
    with pytest.raises(RpcError, match="Connection refused"):
        await channel.Channel(path).connect(0.1)


async def test_a_frozen_server_is_no_connection(path: str) -> None:
    frozen = listening(path)
    opened = channel.Channel(path)
    with pytest.raises(RpcError, match="no connection within"):
        await opened.connect(0.2)
    with pytest.raises(RpcError) as caught:
        await echo(opened, timeout=0.1)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    frozen.close()


async def test_a_server_with_a_full_queue_is_unavailable(path: str) -> None:
    busy = listening(path, backlog=0)
    queue = []
    for _ in range(3):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.setblocking(False)
        one.connect_ex(path)
        queue.append(one)
    with pytest.raises(RpcError) as caught:
        await channel.Channel(path).connect(0.2)
    assert caught.value.code is Code.UNAVAILABLE
    for one in [busy, *queue]:
        one.close()


@pytest.fixture
async def stranger(path: str) -> AsyncIterator[Callable[[Answer], Awaitable[None]]]:
    """Starts a server that answers a connection in its own way."""
    servers: list[asyncio.Server] = []
    connections: list[asyncio.StreamWriter] = []

    async def start(answer: Answer) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            answer(writer)

        servers.append(await asyncio.start_unix_server(accepted, path))

    yield start
    for one in servers:
        one.close()
    for connection in connections:
        connection.transport.abort()


async def test_a_server_that_hangs_up_at_once_is_unavailable(
    path: str, stranger: Callable[[Answer], Awaitable[None]]
) -> None:
    await stranger(lambda writer: writer.transport.abort())
    with pytest.raises(RpcError, match=r"closed the connection at once|reset|Broken pipe"):
        await channel.Channel(path).connect(0.1)


async def test_a_server_that_speaks_something_else_is_unavailable(
    path: str, stranger: Callable[[Answer], Awaitable[None]]
) -> None:
    await stranger(lambda writer: writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(RpcError, match=r"is frozen, or speaks no gRPC"):
        await channel.Channel(path).connect(0.1)


async def test_frames_that_break_the_protocol_end_the_connection(
    path: str, stranger: Callable[[Answer], Awaitable[None]]
) -> None:
    data_on_stream_zero = bytes.fromhex("000001 00 00 00000000 00")
    await stranger(lambda writer: writer.write(data_on_stream_zero))
    with pytest.raises(RpcError, match=r"closed the connection at once"):
        await channel.Channel(path).connect(0.1)


async def test_the_loss_of_an_idle_connection_is_told_at_once(
    path: str, served: server.Server
) -> None:
    lost = asyncio.get_running_loop().create_future()
    opened = channel.Channel(path, on_lost=lost.set_result, reconnect=False)
    await opened.connect(5.0)
    for connection in set(served.connections):
        connection.link.transport.abort()
    assert await asyncio.wait_for(lost, 5.0) == f"the connection to {path} was lost"
    assert not opened.is_connected
    await opened.close()


async def test_without_reconnecting_every_later_call_fails(
    path: str, served: server.Server
) -> None:
    opened = channel.Channel(path, reconnect=False)
    await opened.connect(5.0)
    for connection in set(served.connections):
        connection.link.transport.abort()
    await waiting.until(lambda: not opened.is_connected, "the connection is lost")
    for attempt in (echo(opened), opened.connect(5.0)):
        with pytest.raises(RpcError, match="was lost") as caught:
            await attempt
        assert caught.value.code is Code.UNAVAILABLE
    await opened.close()


async def test_with_reconnecting_the_next_call_works_after_a_restart(
    path: str, sample: rpcs.Sample
) -> None:
    losses: list[str] = []
    first = server.Server([sample], path)
    await first.start()
    opened = channel.Channel(path, on_lost=losses.append)
    await opened.connect(5.0)
    await first.stop()
    await waiting.until(lambda: losses, "the loss is told")
    with pytest.raises(RpcError):
        await echo(opened)
    second = server.Server([sample], path)
    await second.start()
    assert await echo(opened) == Text("x")
    assert len(losses) == 1
    await opened.close()
    await second.stop()


async def test_a_call_in_flight_is_unavailable_when_the_connection_breaks(
    client: channel.Channel, served: server.Server, sample: rpcs.Sample
) -> None:
    call = asyncio.create_task(client.unary(f"{PREFIX}Hold", Text(), Text, timeout=30.0))
    await asyncio.wait_for(sample.started.wait(), 60.0)
    for connection in set(served.connections):
        connection.link.transport.abort()
    with pytest.raises(RpcError) as caught:
        await call
    assert caught.value.code is Code.UNAVAILABLE
    assert call.cancelling() == 0


async def test_a_goodbye_with_a_call_in_flight_is_unavailable(
    client: channel.Channel, served: server.Server, sample: rpcs.Sample
) -> None:
    call = asyncio.create_task(client.unary(f"{PREFIX}Hold", Text(), Text, timeout=30.0))
    await asyncio.wait_for(sample.started.wait(), 60.0)
    for connection in set(served.connections):
        connection.link.end(goodbye=True)
    with pytest.raises(RpcError) as caught:
        await call
    assert caught.value.code is Code.UNAVAILABLE


async def test_a_call_that_the_server_breaks_off_is_unavailable_and_others_go_on(
    path: str, sample: rpcs.Sample
) -> None:
    async def break_off(request: Text) -> Text:
        server.current().drop_call()
        return request

    sample.extra.append(break_off)
    running = server.Server([sample], path)
    await running.start()
    opened = channel.Channel(path)
    with pytest.raises(RpcError, match="reset") as caught:
        await opened.unary(f"{PREFIX}Break_off", Text(), Text, timeout=5.0)
    assert caught.value.code is Code.UNAVAILABLE
    assert await echo(opened) == Text("x")
    await opened.close()
    await running.stop()


async def test_a_closed_channel_says_so(client: channel.Channel) -> None:
    await client.close()
    with pytest.raises(RpcError, match="the channel is closed"):
        await echo(client)


async def test_closing_ends_calls_and_tells_nobody(
    path: str, served: server.Server, sample: rpcs.Sample
) -> None:
    losses: list[str] = []
    opened = channel.Channel(path, on_lost=losses.append)
    call = asyncio.create_task(opened.unary(f"{PREFIX}Hold", Text(), Text, timeout=30.0))
    await asyncio.wait_for(sample.started.wait(), 60.0)
    await opened.close()
    with pytest.raises(RpcError):
        await call
    await asyncio.wait_for(sample.cancelled.wait(), 60.0)
    assert losses == []


async def test_connecting_reports_what_is_in_the_way(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "REPORT_INTERVAL", 0.0)
    told: asyncio.Queue[str] = asyncio.Queue()
    connecting = asyncio.create_task(channel.Channel(path).connect(None, report=told.put_nowait))
    assert await asyncio.wait_for(told.get(), 10.0) == (
        f"still connecting: cannot connect to {path}: No such file or directory"
    )
    connecting.cancel()
    await asyncio.wait([connecting])
