"""How often an end of a connection writes: each write wakes the peer, which costs most."""

import asyncio
from typing import Any

from bitts.rpc import channel, http2, server
from support import rpcs
from support.rpcs import PREFIX, Text


class Counted:
    """A transport that is written through, and notes what was written at once."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def counted(link: http2.Link) -> Counted:
    """Count what an end of a connection writes from now on."""
    made = Counted(link.transport)
    link.connection._transport = made  # type: ignore[assignment]
    return made


async def test_a_request_and_its_answer_are_one_write_each(
    client: channel.Channel, served: server.Server
) -> None:
    await client.unary(f"{PREFIX}Echo", Text("settings are out of the way"), Text, timeout=5.0)
    assert client._link is not None
    [connection] = served.connections
    asked, answered = counted(client._link), counted(connection.link)
    await client.unary(f"{PREFIX}Echo", Text("x"), Text, timeout=5.0)
    assert (len(asked.writes), len(answered.writes)) == (1, 1)


async def test_each_answer_of_many_goes_out_when_it_is_there(
    client: channel.Channel, sample: rpcs.Sample
) -> None:
    replies = client.stream(f"{PREFIX}Steps", Text(), Text, timeout=5.0)
    assert (await anext(replies)).text == "first"
    sample.release.set()  # the second answer is not made before the first has come
    assert [reply.text async for reply in replies] == ["second"]


async def test_requests_larger_together_than_the_peer_takes_at_once_get_through(
    client: channel.Channel,
) -> None:
    large = Text("x" * (3 << 20))
    answers = await asyncio.gather(
        *[client.unary(f"{PREFIX}Echo", large, Text, timeout=20.0) for _ in range(4)]
    )
    assert all(answer == large for answer in answers)
