"""Our two ends against another implementation of gRPC (the C core, by way of grpcio)."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator

import grpc  # type: ignore[import-untyped]  # ships no types
import pytest
from bitts.rpc import channel, server
from bitts.rpc.codes import Code, RpcError
from support import rpcs
from support.rpcs import PREFIX, Text

MEBIBYTE = 1024 * 1024


class Foreign(grpc.GenericRpcHandler):  # type: ignore[misc]  # Any
    """The sample service, answered by grpcio."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Find the answer to a method."""
        name = details.method.removeprefix(PREFIX)
        if name == "Count":
            return grpc.unary_stream_rpc_method_handler(self.count)
        answers: dict[str, Callable[[bytes, grpc.ServicerContext], bytes]] = {
            "Echo": self.echo,
            "Fail": self.fail,
            "Grow": lambda request, context: b"x" * int(request),
            "Hold": self.hold,
        }
        found = answers.get(name)
        return None if found is None else grpc.unary_unary_rpc_method_handler(found)

    def echo(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer with the request and the seconds left."""
        return request + f" {context.time_remaining():.0f}".encode()

    def fail(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Fail."""
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "nö: 100%\n")
        return b""

    def hold(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Wait until the client gives up."""
        over = threading.Event()
        context.add_callback(over.set)
        over.wait(20.0)
        self.cancelled.set()
        return b""

    def count(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer with numbers."""
        return (str(number).encode() for number in range(int(request)))


@pytest.fixture
def foreign(path: str) -> Iterator[Foreign]:
    handlers = Foreign()
    running = grpc.server(concurrent.futures.ThreadPoolExecutor(4), [handlers])
    running.add_insecure_port(f"unix:{path}")
    running.start()
    yield handlers
    running.stop(None).wait()


async def test_our_client_gets_answers_streams_and_statuses(path: str, foreign: Foreign) -> None:
    opened = channel.Channel(path)
    await opened.connect(10.0)
    reply = await opened.unary(f"{PREFIX}Echo", Text("hi"), Text, timeout=40.0)
    assert reply.text in ("hi 40", "hi 39")
    replies = opened.stream(f"{PREFIX}Count", Text("100"), Text, timeout=20.0)
    assert [one.text async for one in replies] == [str(number) for number in range(100)]
    with pytest.raises(RpcError) as caught:
        await opened.unary(f"{PREFIX}Fail", Text(), Text, timeout=20.0)
    assert caught.value == RpcError(Code.FAILED_PRECONDITION, "nö: 100%\n")
    with pytest.raises(RpcError) as caught:
        await opened.unary(f"{PREFIX}Nothing", Text(), Text, timeout=20.0)
    assert caught.value.code is Code.UNIMPLEMENTED
    await opened.close()


async def test_our_client_keeps_limit_and_deadline(path: str, foreign: Foreign) -> None:
    opened = channel.Channel(path)
    with pytest.raises(RpcError) as caught:
        await opened.unary(f"{PREFIX}Grow", Text(str(5 * MEBIBYTE)), Text, timeout=20.0)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    large = await opened.unary(f"{PREFIX}Grow", Text(str(3 * MEBIBYTE)), Text, timeout=20.0)
    assert len(large.text) == 3 * MEBIBYTE
    with pytest.raises(RpcError) as caught:
        await opened.unary(f"{PREFIX}Hold", Text(), Text, timeout=0.1)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert await asyncio.to_thread(foreign.cancelled.wait, 10.0)
    await opened.close()


async def test_our_client_sees_a_graceful_end(path: str) -> None:
    running = grpc.server(concurrent.futures.ThreadPoolExecutor(2), [Foreign()])
    running.add_insecure_port(f"unix:{path}")
    running.start()
    lost = asyncio.get_running_loop().create_future()
    opened = channel.Channel(path, on_lost=lost.set_result)
    await opened.connect(10.0)
    await asyncio.to_thread(running.stop(None).wait)
    await asyncio.wait_for(lost, 60.0)
    await opened.close()


def foreign_calls(path: str) -> dict[str, object]:
    """Call our server with grpcio, from a thread."""
    seen: dict[str, object] = {}
    with grpc.insecure_channel(f"unix:{path}") as opened:
        echo = opened.unary_unary(f"{PREFIX}Echo")
        seen["echo"] = echo(b"hello", timeout=20.0)
        seen["large"] = len(echo(b"x" * 3 * MEBIBYTE, timeout=20.0))
        count = opened.unary_stream(f"{PREFIX}Count")
        seen["count"] = list(count(b"50", timeout=20.0))
        for name, request in (("Fail", b"Aborted"), ("Raises", b"pw"), ("Nothing", b"")):
            try:
                opened.unary_unary(PREFIX + name)(request, timeout=20.0)
            except grpc.RpcError as error:
                seen[name] = (error.code().name, error.details())
        try:
            opened.unary_unary(f"{PREFIX}Hold")(b"", timeout=0.2)
        except grpc.RpcError as error:
            seen["Hold"] = error.code().name
        burst = [echo.future(str(number).encode(), timeout=20.0) for number in range(300)]
        seen["burst"] = [int(one.result()) for one in burst]
    return seen


async def test_our_server_serves_another_client(path: str, sample: rpcs.Sample) -> None:
    running = server.Server([sample], path)
    await running.start()
    seen = await asyncio.to_thread(foreign_calls, path)
    assert seen["echo"] == b"hello"
    assert seen["large"] == 3 * MEBIBYTE
    assert seen["count"] == [str(number).encode() for number in range(50)]
    assert seen["Fail"] == ("ABORTED", "nö: Aborted 100%\n")
    assert seen["Raises"] == (
        "INTERNAL",
        "unexpected KeyError in /test.Sample/Raises; the server's log has the trace",
    )
    assert seen["Nothing"] == ("UNIMPLEMENTED", "/test.Sample/Nothing is not implemented")
    assert seen["Hold"] == "DEADLINE_EXCEEDED"
    assert seen["burst"] == list(range(300))
    await asyncio.wait_for(sample.cancelled.wait(), 60.0)
    await running.stop()
