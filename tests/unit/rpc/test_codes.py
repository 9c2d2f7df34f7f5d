import pytest
from bitts.rpc.codes import Code, RpcError


def test_go_spellings_are_those_of_metric_labels() -> None:
    names = [code.go_name for code in Code]
    assert names == [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ]


@pytest.mark.parametrize("code", list(Code))
def test_both_spellings_name_a_code(code: Code) -> None:
    assert Code.from_name(code.go_name) is code
    assert Code.from_name(code.name) is code


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'Nope'; known are OK, Canceled"):
        Code.from_name("Nope")


def test_numbers_beyond_grpc_are_unknown() -> None:
    assert Code.from_number(5) is Code.NOT_FOUND
    assert Code.from_number(99) is Code.UNKNOWN


def test_an_error_reads_as_in_go() -> None:
    error = RpcError(Code.RESOURCE_EXHAUSTED, "pool full")
    assert str(error) == "rpc error: code = ResourceExhausted desc = pool full"


def test_errors_are_values() -> None:
    assert RpcError(Code.ABORTED, "a") == RpcError(Code.ABORTED, "a")
    assert len({RpcError(Code.ABORTED, "a"), RpcError(Code.ABORTED, "a")}) == 1
    assert RpcError(Code.ABORTED, "a") != RpcError(Code.ABORTED, "b")
    assert RpcError(Code.ABORTED, "a") != "a"
