"""Attaching decided: one node, one way of use, a limit."""

import dataclasses

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver import attachments
from local_driver.volumes import AccessType, Attachment, Content, Volume

VOLUME = Volume(
    "id", "v", 1, "n", "image", 10, frozenset(AccessType), "ext4", Content.BLANK, 0.0
)  # fmt: skip
WRITABLE = Attachment("n", read_only=False)
READ_ONLY = Attachment("n", read_only=True)


def attached(volume: Volume, wanted: Attachment, used: int = 0, limit: int = 0) -> Volume:
    return attachments.attached(volume, wanted, used=used, limit=limit)


def test_a_volume_is_attached_once_and_detached() -> None:
    once = attached(VOLUME, WRITABLE)
    assert once.attachments == (WRITABLE,)
    assert attached(once, WRITABLE, used=9, limit=1) is once
    assert attachments.require(once, "n") == WRITABLE
    for node in ("n", ""):
        assert attachments.detached(once, node) == VOLUME
    assert attachments.detached(once, "other") == once


@pytest.mark.parametrize(
    ("volume", "wanted", "used", "code"),
    [
        pytest.param(VOLUME, Attachment("m", read_only=False), 0, Code.NOT_FOUND, id="other node"),
        pytest.param(VOLUME, WRITABLE, 2, Code.RESOURCE_EXHAUSTED, id="limit"),
        pytest.param(
            dataclasses.replace(VOLUME, attachments=(READ_ONLY,)), WRITABLE, 1,
            Code.ALREADY_EXISTS, id="otherwise",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_attached_is_refused(
    volume: Volume, wanted: Attachment, used: int, code: Code
) -> None:
    with pytest.raises(RpcError) as caught:
        attached(volume, wanted, used, 2)
    assert caught.value.code is code


def test_a_volume_is_not_used_where_it_is_not_attached() -> None:
    with pytest.raises(RpcError, match="not attached to node 'n'"):
        attachments.require(VOLUME, "n")
