"""Peers that keep to HTTP/2 but not to gRPC, or end in the middle."""

import logging

import h2.connection
import pytest
from bitts.rpc import channel, server
from bitts.rpc.codes import Code, RpcError, UnreadableError
from support import rawhttp2
from support.rawhttp2 import OK, TRAILERS, framed
from support.rpcs import PREFIX, Text

H2 = h2.connection.H2Connection


async def ask(path: str, timeout: float = 5.0) -> Text:
    opened = channel.Channel(path)
    try:
        return await opened.unary(f"{PREFIX}Echo", Text("x"), Text, timeout=timeout)
    finally:
        await opened.close()


def whole(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    h2.send_data(stream, framed("answer"))
    h2.send_headers(stream, TRAILERS, end_stream=True)


def compressed(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    h2.send_data(stream, framed("answer", compressed=True))


def cut_off(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    h2.send_data(stream, framed("ans", missing=3))
    h2.send_headers(stream, TRAILERS, end_stream=True)


def no_message(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    h2.send_headers(stream, TRAILERS, end_stream=True)


def trailers_only(h2: H2, stream: int) -> None:
    h2.send_headers(stream, [*OK, *TRAILERS], end_stream=True)


def web_page(h2: H2, stream: int) -> None:
    h2.send_headers(stream, [(":status", "200"), ("content-type", "text/html")])


def gateway(h2: H2, stream: int) -> None:
    h2.send_headers(stream, [(":status", "503")], end_stream=True)


def no_status(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    h2.send_data(stream, framed("answer"))
    h2.send_headers(stream, [("other", "1")], end_stream=True)


def reset_in_a_message(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    h2.send_data(stream, framed("ans", missing=3))
    h2.reset_stream(stream)


def reset_before_the_status(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    h2.send_data(stream, framed("answer"))
    h2.reset_stream(stream)


def error(h2: H2, stream: int) -> None:
    h2.send_headers(stream, OK)
    status = [("grpc-status", "10"), ("grpc-message", "busy")]
    h2.send_headers(stream, status, end_stream=True)


def goodbye(h2: H2, stream: int) -> None:
    h2.close_connection()


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (compressed, Code.INTERNAL, "compresses"),
        (cut_off, Code.INTERNAL, "cut off"),
        (no_message, Code.INTERNAL, "OK without an answer"),
        (trailers_only, Code.INTERNAL, "OK without an answer"),
        (web_page, Code.UNKNOWN, "content type 'text/html'"),
        (gateway, Code.UNAVAILABLE, "HTTP status 503"),
        (no_status, Code.UNKNOWN, "no valid grpc-status"),
        (reset_in_a_message, Code.UNAVAILABLE, "reset"),
        (reset_before_the_status, Code.UNAVAILABLE, "reset"),
        (error, Code.ABORTED, "busy"),
        (goodbye, Code.UNAVAILABLE, "GOAWAY"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("hangs_up", [False, True], ids=["stays", "hangs up"])
async def test_a_bad_answer_is_an_error(
    path: str, answer: rawhttp2.Answer, code: Code, text: str, *, hangs_up: bool
) -> None:
    async with rawhttp2.serving(path, answer, hangs_up=hangs_up):
        with pytest.raises(RpcError, match=text) as caught:
            await ask(path)
    assert caught.value.code is code
    is_unreadable = code in (Code.INTERNAL, Code.UNKNOWN)
    assert isinstance(caught.value, UnreadableError) is is_unreadable, "the peer's own word differs"


@pytest.mark.parametrize("hangs_up", [False, True], ids=["stays", "hangs up"])
async def test_a_whole_answer_counts_though_the_server_hangs_up(
    path: str, *, hangs_up: bool
) -> None:
    async with rawhttp2.serving(path, whole, hangs_up=hangs_up):
        assert await ask(path) == Text("answer")


ECHO = {":path": f"{PREFIX}Echo"}


async def test_a_request_that_is_not_grpc_is_refused_as_http(served: server.Server) -> None:
    async with rawhttp2.client(served.socket_path) as peer:
        reply = await peer.ask({**ECHO, "content-type": "application/json"}, b"{}")
        assert reply[":status"] == "415"
        reply = await peer.ask(ECHO, framed("still here"))
        assert reply["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("headers", "bodies", "text"),
    [
        ({"grpc-timeout": "soon"}, [framed("x")], "grpc-timeout"),
        ({}, [], "no request"),
        ({}, [b""], "no request"),
        ({}, [framed("x", missing=5)], "cut off"),
        ({}, [framed("x", compressed=True)], "compresses"),
    ],
    ids=["bad deadline", "headers only", "empty", "cut off", "compressed"],
)
async def test_a_bad_request_is_internal(
    served: server.Server,
    headers: dict[str, str],
    bodies: list[bytes],
    text: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        async with rawhttp2.client(served.socket_path) as peer:
            reply = await peer.ask({**ECHO, **headers}, *bodies)
    assert reply["grpc-status"] == str(Code.INTERNAL.value)
    assert text in reply["grpc-message"].replace("%20", " ")
    assert caplog.records == []


async def test_a_request_in_pieces_is_put_together(served: server.Server) -> None:
    whole_request = framed("in pieces")
    async with rawhttp2.client(served.socket_path) as peer:
        pieces = [whole_request[at : at + 1] for at in range(len(whole_request))]
        reply = await peer.ask(ECHO, *pieces)
    assert reply["grpc-status"] == "0"


async def test_frames_that_break_the_protocol_end_that_connection_only(
    served: server.Server, client: channel.Channel
) -> None:
    async with rawhttp2.client(served.socket_path) as peer:
        data_on_stream_zero = bytes.fromhex("000001 00 00 00000000 00")
        peer._writer.write(data_on_stream_zero)
        assert await peer._reader.read() is not None
    assert await client.unary(f"{PREFIX}Echo", Text("x"), Text, timeout=5.0) == Text("x")
