"""What remembering blocks of headers must not change: every block reads as plain HPACK does."""

import hpack
from bitts.rpc import headerblocks, wire
from hypothesis import given, settings
from hypothesis import strategies as st

Headers = list[tuple[bytes, bytes]]

RECURRING: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]

_names = st.sampled_from([b":path", b"grpc-status", b"user-agent", b"x-" + b"n" * 60])
_values = st.sampled_from([b"0", b"13", b"/csi.v1.Node/NodePublishVolume", b"v" * 500])
_blocks = st.lists(st.tuples(_names, _values), min_size=1, max_size=4)
_steps = st.lists(st.one_of(_blocks, st.integers(0, 600)), min_size=1, max_size=40)
"""Blocks to send; a number is a new size of the table, as a peer may ask for at any time."""


def _plain(headers: list[hpack.HeaderTuple]) -> Headers:
    return [(name, value) for name, value in headers]


@settings(max_examples=150)
@given(_steps)
def test_others_read_what_is_written_and_written_again(steps: list[Headers | int]) -> None:
    encoder, decoder = headerblocks.Encoder(), hpack.Decoder()
    for step in steps:
        if isinstance(step, int):
            encoder.header_table_size = step
        else:
            for _ in range(3):
                assert _plain(list(decoder.decode(encoder.encode(step), raw=True))) == step


@settings(max_examples=150)
@given(_steps)
def test_what_others_write_is_read_and_read_again(steps: list[Headers | int]) -> None:
    encoder, decoder = hpack.Encoder(), headerblocks.Decoder(1 << 16)
    for step in steps:
        if isinstance(step, int):
            if step != encoder.header_table_size:  # hpack's own forgets to tell the one before
                encoder.header_table_size = step
        else:
            for _ in range(3):
                assert _plain(decoder.decode(encoder.encode(step), raw=True)) == step


def test_what_recurs_is_not_worked_out_again() -> None:
    encoder, decoder = headerblocks.Encoder(), headerblocks.Decoder(1 << 16)
    decoder.decode(encoder.encode(RECURRING), raw=True)  # fills both tables
    first = encoder.encode(RECURRING)
    assert encoder.encode(list(RECURRING)) is first
    assert decoder.decode(first, raw=True) is decoder.decode(bytes(bytearray(first)), raw=True)


def test_a_peer_whose_headers_never_repeat_holds_no_memory() -> None:
    encoder, decoder = headerblocks.Encoder(), headerblocks.Decoder(1 << 16)
    for number in range(5 * headerblocks.REMEMBERED):
        deadline = hpack.NeverIndexedHeaderTuple(b"grpc-timeout", b"%dm" % number)
        decoder.decode(encoder.encode([deadline]), raw=True)
    assert len(encoder._known) <= headerblocks.REMEMBERED
    assert len(decoder._known) <= headerblocks.REMEMBERED


def test_a_deadline_does_not_displace_what_recurs() -> None:
    encoder = headerblocks.Encoder()
    for milliseconds in range(1000, 1300):
        opening = wire.request_headers("/m", milliseconds / 1000, "bitts")
        encoder.encode([*opening])
    again = encoder.encode(wire.request_headers("/m", None, "bitts"))
    assert len(again) == len(wire.request_headers("/m", None, "bitts"))
