"""What is bounded: messages, streams at once, and what a long life leaves in memory."""

import asyncio

import pytest
from bitts.rpc import channel, http2, server
from bitts.rpc.codes import Code, RpcError
from support import rpcs, waiting
from support.rpcs import PREFIX, Text

MEBIBYTE = 1024 * 1024


async def grow(opened: channel.Channel, size: int) -> int:
    reply = await opened.unary(f"{PREFIX}Grow", Text(str(size)), Text, timeout=20.0)
    return len(reply.text)


async def test_an_answer_of_exactly_the_limit_is_taken(client: channel.Channel) -> None:
    assert await grow(client, 4 * MEBIBYTE) == 4 * MEBIBYTE


async def test_a_larger_answer_is_resource_exhausted_and_the_channel_goes_on(
    client: channel.Channel,
) -> None:
    with pytest.raises(RpcError) as caught:
        await grow(client, 4 * MEBIBYTE + 1)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert caught.value.message == "the message has 4194305 bytes, at most 4194304 are taken"
    assert await grow(client, 1) == 1


async def test_a_larger_limit_can_be_chosen(path: str, served: server.Server) -> None:
    opened = channel.Channel(path, receive_limit=6 * MEBIBYTE)
    assert await grow(opened, 5 * MEBIBYTE) == 5 * MEBIBYTE
    await opened.close()


async def test_a_request_beyond_the_limit_is_resource_exhausted(
    path: str, sample: rpcs.Sample
) -> None:
    running = server.Server([sample], path, receive_limit=1000)
    await running.start()
    opened = channel.Channel(path)
    with pytest.raises(RpcError) as caught:
        await opened.unary(f"{PREFIX}Echo", Text("x" * 8 * MEBIBYTE), Text, timeout=20.0)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    reply = await opened.unary(f"{PREFIX}Echo", Text("x" * 1000), Text, timeout=5.0)
    assert len(reply.text) == 1000
    await opened.close()
    await running.stop()


async def test_more_calls_than_streams_wait_their_turn(
    client: channel.Channel, sample: rpcs.Sample
) -> None:
    async def hold(number: int) -> str:
        request = Text(str(number))
        return (await client.unary(f"{PREFIX}Hold", request, Text, timeout=30.0)).text

    waiting_calls = [asyncio.create_task(hold(number)) for number in range(150)]
    await waiting.until(lambda: sample.running == 100, "as many calls as the server allows")
    sample.release.set()
    assert await asyncio.gather(*waiting_calls) == [str(number) for number in range(150)]
    assert sample.most_running == 100


async def test_calls_that_wait_for_a_stream_end_with_the_connection(
    client: channel.Channel, served: server.Server, sample: rpcs.Sample
) -> None:
    held = [
        asyncio.create_task(client.unary(f"{PREFIX}Hold", Text(), Text, timeout=30.0))
        for _ in range(120)
    ]
    await waiting.until(lambda: sample.running == 100, "as many calls as the server allows")
    for connection in set(served.connections):
        connection.link.transport.abort()
    ends = await asyncio.gather(*held, return_exceptions=True)
    assert {end.code for end in ends if isinstance(end, RpcError)} == {Code.UNAVAILABLE}
    assert len(ends) == 120


async def test_closed_streams_are_forgotten(client: channel.Channel, served: server.Server) -> None:
    for _ in range(300):
        await client.unary(f"{PREFIX}Echo", Text("x"), Text, timeout=5.0)
    [connection] = served.connections
    links = [connection.link, client._link]
    for link in links:
        assert link is not None
        assert len(link.h2._closed_streams) <= http2.CLOSED_STREAMS
        assert len(link.processor.streams) == 0
    assert not served.tasks


async def test_a_reader_that_stops_reading_does_not_fill_memory(
    client: channel.Channel, served: server.Server, sample: rpcs.Sample
) -> None:
    replies = client.stream(f"{PREFIX}Count", Text("ever"), Text, timeout=None)
    assert int((await anext(replies)).text) == 0
    [connection] = served.connections
    h2 = connection.link.h2
    await waiting.until(lambda: h2.outbound_flow_control_window == 0, "the window is used up")
    await replies.aclose()
    await asyncio.wait_for(sample.cancelled.wait(), 60.0)


async def test_a_connection_that_has_used_up_its_numbers_is_replaced(
    client: channel.Channel,
) -> None:
    assert client._link is not None
    client._link.h2.highest_outbound_stream_id = 2**31 - 1
    with pytest.raises(RpcError, match="no more stream numbers") as caught:
        await grow(client, 1)
    assert caught.value.code is Code.UNAVAILABLE
    assert await grow(client, 1) == 1
