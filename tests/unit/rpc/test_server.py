"""How a server begins, fails, stops, and what it leaves behind."""

import asyncio
import logging
import os
import pathlib
import socket
import stat

import pytest
from bitts.rpc import channel, server, sockets
from bitts.rpc.codes import Code, RpcError
from support import rpcs, waiting
from support.rpcs import PREFIX, Text


async def call(opened: channel.Channel, method: str, text: str = "") -> Text:
    return await opened.unary(PREFIX + method, Text(text), Text, timeout=10.0)


async def test_the_socket_has_its_mode_and_goes_with_the_server(
    path: str, sample: rpcs.Sample
) -> None:
    running = server.Server([sample], path, mode=0o660)
    await running.start()
    found = await asyncio.to_thread(os.stat, path)
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o660
    await running.stop()
    assert await asyncio.to_thread(os.listdir, os.path.dirname(path)) == []


async def test_a_dead_process_s_socket_is_replaced(path: str, sample: rpcs.Sample) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(path)
    dead.close()
    running = server.Server([sample], path)
    await running.start()
    opened = channel.Channel(path)
    assert await call(opened, "Echo", "alive") == Text("alive")
    await opened.close()
    await running.stop()


async def test_a_live_server_s_socket_is_left_alone(
    client: channel.Channel, served: server.Server, sample: rpcs.Sample
) -> None:
    with pytest.raises(OSError, match=r"another process serves .*: stop it first"):
        await server.Server([sample], served.socket_path).start()
    assert await call(client, "Echo", "mine") == Text("mine")


async def test_a_file_in_the_way_is_left_alone(path: str, sample: rpcs.Sample) -> None:
    await asyncio.to_thread(pathlib.Path(path).write_text, "precious")
    with pytest.raises(FileExistsError, match="is no socket: remove it or choose another path"):
        await server.Server([sample], path).start()
    assert await asyncio.to_thread(pathlib.Path(path).read_text) == "precious"


async def test_a_missing_folder_is_named(path: str, sample: rpcs.Sample) -> None:
    with pytest.raises(OSError, match=r"cannot listen at .*/no/such\.sock: No such file"):
        await server.Server([sample], f"{path}/no/such.sock").start()


async def test_a_path_too_long_for_the_kernel_is_refused(sample: rpcs.Sample) -> None:
    with pytest.raises(ValueError, match="use a shorter folder name"):
        await server.Server([], "/tmp/" + "x" * 110).start()


def test_a_socket_that_another_process_put_in_place_is_not_removed(path: str) -> None:
    ours = sockets.ListeningSocket(path, 0o600)
    opened = ours.open()
    ours.publish()
    pathlib.Path(path).unlink()
    theirs = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.bind(path)
    ours.remove()
    assert pathlib.Path(path).exists()
    opened.close()
    theirs.close()


async def test_stopping_lets_calls_in_flight_end(
    client: channel.Channel, served: server.Server, sample: rpcs.Sample
) -> None:
    held = asyncio.create_task(call(client, "Hold", "kept"))
    await asyncio.wait_for(sample.started.wait(), 60.0)
    stopping = asyncio.create_task(served.stop(grace=10.0))
    await waiting.until(lambda: served.is_stopping, "the server stops")
    with pytest.raises(RpcError, match="the server is stopping") as caught:
        await call(client, "Echo")
    assert caught.value.code is Code.UNAVAILABLE
    sample.release.set()
    assert await held == Text("kept")
    await stopping


async def test_stopping_cancels_what_lasts_longer_than_the_grace(
    client: channel.Channel, served: server.Server, sample: rpcs.Sample
) -> None:
    held = asyncio.create_task(call(client, "Hold"))
    await asyncio.wait_for(sample.started.wait(), 60.0)
    await served.stop(grace=0.05)
    assert sample.cancelled.is_set()
    with pytest.raises(RpcError) as caught:
        await held
    assert caught.value.code is Code.UNAVAILABLE
    await waiting.until(lambda: not served.connections, "connections are closed")


async def test_a_server_that_never_started_stops(path: str) -> None:
    await server.Server([], path).stop()


async def test_a_defect_is_internal_and_its_text_stays_here(
    path: str, sample: rpcs.Sample, caplog: pytest.LogCaptureFixture
) -> None:
    running = server.Server(
        [sample],
        path,
        scrub=lambda request, text: text.replace(str(request.text), "***"),  # type: ignore[attr-defined]
    )
    await running.start()
    opened = channel.Channel(path)
    with caplog.at_level(logging.ERROR, "bitts"), pytest.raises(RpcError) as caught:
        await call(opened, "Raises", "hunter2")
    assert caught.value.code is Code.INTERNAL
    assert "unexpected KeyError in /test.Sample/Raises" in caught.value.message
    [record] = [one for one in caplog.records if one.getMessage() == "A handler failed"]
    trace = record.__dict__["fields"]["trace"]
    assert "KeyError: '***'" in trace
    assert "hunter2" not in trace + caught.value.message
    await opened.close()
    await running.stop()


async def test_a_handler_s_own_timeout_is_a_defect(client: channel.Channel) -> None:
    with pytest.raises(RpcError, match="unexpected TimeoutError"):
        await call(client, "Late")


async def test_a_handler_knows_its_call(path: str, sample: rpcs.Sample) -> None:
    async def tell(request: Text) -> Text:
        incoming = server.current()
        left = incoming.remaining()
        assert left is not None
        assert 0 < left <= 10.0
        return Text(incoming.method)

    sample.extra.append(tell)
    running = server.Server([sample], path)
    await running.start()
    opened = channel.Channel(path)
    assert await call(opened, "Tell") == Text("/test.Sample/Tell")
    with pytest.raises(LookupError):
        server.current()
    await opened.close()
    await running.stop()


async def test_a_handler_may_cut_its_connection(path: str, sample: rpcs.Sample) -> None:
    async def cut(request: Text) -> Text:
        server.current().drop_connection()
        return request

    sample.extra.append(cut)
    running = server.Server([sample], path)
    await running.start()
    opened = channel.Channel(path)
    with pytest.raises(RpcError) as caught:
        await call(opened, "Cut")
    assert caught.value.code is Code.UNAVAILABLE
    await running.stop()
    await opened.close()


async def test_a_request_that_cannot_be_read_is_internal(path: str, served: server.Server) -> None:
    class Bytes(Text):
        def __bytes__(self) -> bytes:
            return b"\xff"

    opened = channel.Channel(path)
    with pytest.raises(RpcError, match=r"the request is no Text \(UnicodeDecodeError\)"):
        await opened.unary(f"{PREFIX}Echo", Bytes(), Text, timeout=5.0)
    await opened.close()
