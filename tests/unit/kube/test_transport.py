"""The transport against a server on a real socket."""

import asyncio

from bitts.kube import config as configuration
from bitts.kube import credentials, transport

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_stream_that_speaks_much_is_read_in_larger_pieces() -> None:
    lines = [b"%d\n" % number for number in range(500)]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for line in lines:
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = configuration.Config(address, "a test", credentials.Fixed())
    wire = transport.Transport(config, None, "x/1")
    try:
        async with server, wire.stream("/", silence=5) as stream:
            pieces = [piece async for piece in stream]
    finally:
        await wire.close()
    assert b"".join(pieces) == b"".join(lines)
    assert len(pieces) < 100
