"""Calls that end as the server wants, as the clock wants, and as the caller wants."""

import asyncio
import contextlib

import pytest
from bitts.rpc import calls, channel, server
from bitts.rpc.codes import Code, RpcError, UnreadableError
from support import rpcs, waiting
from support.rpcs import PREFIX, Text


class Recorder:
    """Notes what observers are told."""

    def __init__(self) -> None:
        self.started_calls: list[str] = []
        self.ended_calls: list[tuple[str, Code]] = []

    def started(self, call: calls.Call) -> None:
        self.started_calls.append(call.method)

    def ended(self, call: calls.Call) -> None:
        assert call.seconds >= 0
        self.ended_calls.append((call.method, call.code))


async def failure(
    opened: channel.Channel, method: str, text: str, timeout: float = 5.0
) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await opened.unary(PREFIX + method, Text(text), Text, timeout=timeout)
    return caught.value


async def test_an_answer_arrives(client: channel.Channel) -> None:
    reply = await client.unary(f"{PREFIX}Echo", Text("hello"), Text, timeout=5.0)
    assert reply == Text("hello")


async def test_an_empty_message_is_an_answer(client: channel.Channel) -> None:
    assert await client.unary(f"{PREFIX}Echo", Text(), Text, timeout=5.0) == Text()


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
async def test_every_status_arrives_with_its_message(client: channel.Channel, code: Code) -> None:
    error = await failure(client, "Fail", code.name)
    assert error == RpcError(code, f"nö: {code.name} 100%\n")


async def test_an_unknown_method_is_unimplemented(client: channel.Channel) -> None:
    assert (await failure(client, "Nothing", "")).code is Code.UNIMPLEMENTED


async def test_a_deadline_ends_the_call_at_both_ends(
    client: channel.Channel, sample: rpcs.Sample
) -> None:
    error = await failure(client, "Hold", "", timeout=0.05)
    assert error.code is Code.DEADLINE_EXCEEDED
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.wait_for(sample.cancelled.wait(), 60.0)


async def test_no_time_left_fails_without_calling(
    client: channel.Channel, sample: rpcs.Sample
) -> None:
    assert (await failure(client, "Hold", "", timeout=-1.0)).code is Code.DEADLINE_EXCEEDED
    assert not sample.started.is_set()


async def test_cancelling_the_caller_cancels_the_handler(
    client: channel.Channel, sample: rpcs.Sample
) -> None:
    call = asyncio.create_task(client.unary(f"{PREFIX}Hold", Text(), Text, timeout=30.0))
    await asyncio.wait_for(sample.started.wait(), 60.0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(sample.cancelled.wait(), 60.0)
    assert await client.unary(f"{PREFIX}Echo", Text("on"), Text, timeout=5.0) == Text("on")


async def test_a_cancellation_survives_the_loss_of_the_connection_at_the_same_moment(
    client: channel.Channel, sample: rpcs.Sample, served: server.Server
) -> None:
    call = asyncio.create_task(client.unary(f"{PREFIX}Hold", Text(), Text, timeout=30.0))
    await asyncio.wait_for(sample.started.wait(), 60.0)
    for connection in set(served.connections):
        connection.link.transport.abort()
    await waiting.until(lambda: not client.is_connected, "the connection is lost", interval=0.0)
    call.cancel()
    with pytest.raises((asyncio.CancelledError, RpcError)):
        await call
    assert call.cancelled() or call.cancelling() == 1


async def test_an_answer_that_cannot_be_read_is_internal(client: channel.Channel) -> None:
    class Picky(Text):
        @classmethod
        def parse(cls, data: bytes) -> "Picky":
            raise ValueError("secret inside")

    with pytest.raises(UnreadableError) as caught:
        await client.unary(f"{PREFIX}Echo", Text("x"), Picky, timeout=5.0)
    assert caught.value == RpcError(Code.INTERNAL, "the answer is no Picky (ValueError)")


async def test_a_request_that_cannot_be_encoded_is_internal(client: channel.Channel) -> None:
    with pytest.raises(RpcError) as caught:
        await client.unary(f"{PREFIX}Echo", rpcs.Broken("secret"), Text, timeout=5.0)
    assert caught.value == RpcError(Code.INTERNAL, "Broken cannot be encoded (TypeError)")


async def test_many_answers_arrive_in_order(client: channel.Channel) -> None:
    replies = client.stream(f"{PREFIX}Count", Text("500"), Text, timeout=10.0)
    assert [reply.text async for reply in replies] == [str(number) for number in range(500)]


async def test_no_answer_at_all_ends_a_stream(client: channel.Channel) -> None:
    replies = client.stream(f"{PREFIX}Count", Text("0"), Text, timeout=None)
    assert [reply async for reply in replies] == []


async def test_a_stream_may_fail_after_answers(client: channel.Channel) -> None:
    replies = client.stream(f"{PREFIX}Count", Text("-2"), Text, timeout=5.0)
    assert [(await anext(replies)).text, (await anext(replies)).text] == ["0", "1"]
    with pytest.raises(RpcError, match="enough"):
        await anext(replies)


async def test_a_stream_of_a_method_that_fails_at_once(client: channel.Channel) -> None:
    with pytest.raises(RpcError, match="not implemented"):
        await anext(client.stream(f"{PREFIX}Nothing", Text(), Text, timeout=5.0))


async def test_leaving_a_stream_early_ends_it_at_the_server(
    client: channel.Channel, sample: rpcs.Sample
) -> None:
    replies = client.stream(f"{PREFIX}Count", Text("ever"), Text, timeout=None)
    async with contextlib.aclosing(replies):
        async for reply in replies:
            if int(reply.text) == 3:
                break
    await asyncio.wait_for(sample.cancelled.wait(), 60.0)


async def test_observers_see_every_end(path: str, served: server.Server) -> None:
    recorder = Recorder()
    measured: list[tuple[str, str]] = []
    metric = calls.MetricsObserver(lambda method, code, _: measured.append((method, code)))
    opened = channel.Channel(path, observers=[recorder, metric])
    await opened.unary(f"{PREFIX}Echo", Text("x"), Text, timeout=5.0)
    await failure(opened, "Fail", "Aborted")
    await failure(opened, "Hold", "", timeout=0.01)
    async for _ in opened.stream(f"{PREFIX}Count", Text("1"), Text, timeout=5.0):
        pass
    call = asyncio.create_task(opened.unary(f"{PREFIX}Hold", Text(), Text, timeout=30.0))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    await opened.close()
    ends = [Code.OK, Code.ABORTED, Code.DEADLINE_EXCEEDED, Code.OK, Code.CANCELLED]
    assert [code for _, code in recorder.ended_calls] == ends
    assert [code for _, code in measured] == [code.go_name for code in ends]
    assert len(recorder.started_calls) == len(ends)
