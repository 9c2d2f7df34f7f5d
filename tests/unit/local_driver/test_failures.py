"""System errors as gRPC codes."""

import errno

import pytest
from bitts.rpc.codes import Code
from local_driver import failures


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, Code.RESOURCE_EXHAUSTED, ""),
        (errno.EDQUOT, Code.RESOURCE_EXHAUSTED, ""),
        (errno.EFBIG, Code.OUT_OF_RANGE, "so large a file"),
        (errno.EPERM, Code.FAILED_PRECONDITION, "CAP_SYS_ADMIN"),
        (errno.EBUSY, Code.FAILED_PRECONDITION, "still uses it"),
        (errno.EIO, Code.INTERNAL, ""),
    ],
)
def test_codes(number: int, code: Code, words: str) -> None:
    found = failures.rpc_error(OSError(number, "did not work"), "volume v")
    assert found.code is code
    assert found.message.startswith("volume v: ")
    assert "did not work" in found.message
    assert words in found.message


def test_errors_without_a_number_are_internal() -> None:
    assert failures.rpc_error(OSError("mkfs ended with 1"), "volume v").code is Code.INTERNAL
