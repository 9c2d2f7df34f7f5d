import pytest
from bitts.rpc import wire
from bitts.rpc.codes import Code, RpcError
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=100)
@given(st.floats(min_value=1e-6, max_value=3e11))
def test_a_deadline_survives_the_wire_and_never_grows(seconds: float) -> None:
    text = wire.encode_timeout(seconds)
    assert len(text) <= 9
    read = wire.decode_timeout(text)
    assert read <= seconds * (1 + 1e-9) or seconds < 2e-6
    assert read >= seconds * 0.99 - 2e-6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1u"),
        (0.25, "250000u"),
        (1.0, "1000m"),
        (15.0, "15000m"),
        (120.0, "120000m"),
        (1e6, "1000000S"),
        (1e9, "16666666M"),
        (1e18, "99999999H"),
    ],
)
def test_a_deadline_is_written_as_finely_as_digits_and_equal_headers_allow(
    seconds: float, text: str
) -> None:
    assert wire.encode_timeout(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("5n", 5e-9), ("100m", 0.1), ("3S", 3.0), ("2M", 120.0), ("1H", 3600.0)]
)
def test_every_unit_of_a_deadline_is_read(text: str, seconds: float) -> None:
    assert wire.decode_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "-1S", "1.5S", "123456789S", "²S"])
def test_a_bad_deadline_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="grpc-timeout"):
        wire.decode_timeout(text)


@settings(max_examples=100)
@given(st.text())
def test_a_status_message_survives_the_wire(text: str) -> None:
    clean = text.encode(errors="replace").decode()
    encoded = wire.encode_message(clean)
    assert encoded.isascii()
    assert encoded.isprintable()
    assert wire.decode_message(encoded) == clean


@pytest.mark.parametrize(
    ("status", "code"),
    [("404", Code.UNIMPLEMENTED), ("503", Code.UNAVAILABLE), ("302", Code.UNKNOWN)],
)
def test_a_failed_http_response_is_a_status(status: str, code: Code) -> None:
    with pytest.raises(RpcError, match=status) as caught:
        wire.check_response({":status": status})
    assert caught.value.code is code


def test_a_response_without_status_or_of_another_kind_is_unknown() -> None:
    with pytest.raises(RpcError, match="HTTP status missing"):
        wire.check_response({})
    with pytest.raises(RpcError, match="'text/html'") as caught:
        wire.check_response({":status": "200", "content-type": "text/html"})
    assert caught.value.code is Code.UNKNOWN


@pytest.mark.parametrize("status", [None, "", "x"])
def test_trailers_without_a_status_are_unknown(status: str | None) -> None:
    trailers = {} if status is None else {"grpc-status": status}
    with pytest.raises(RpcError, match="no valid grpc-status") as caught:
        wire.check_status(trailers)
    assert caught.value.code is Code.UNKNOWN


def test_a_status_beyond_grpc_keeps_its_number_in_the_text() -> None:
    with pytest.raises(RpcError) as caught:
        wire.check_status({"grpc-status": "42", "grpc-message": "odd"})
    assert caught.value == RpcError(Code.UNKNOWN, "odd (status 42)")


def test_ok_raises_nothing() -> None:
    wire.check_response(dict(wire.response_headers()))
    wire.check_status(dict(wire.status_trailers(None)))


def test_an_error_survives_its_trailers() -> None:
    error = RpcError(Code.DATA_LOSS, "50 % – gone\n")
    with pytest.raises(RpcError) as caught:
        wire.check_status(dict(wire.status_trailers(error)))
    assert caught.value == error
