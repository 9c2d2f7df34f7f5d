"""Lists decode in slices, and what does not fit is named."""

import asyncio
import json

import pytest
from bitts.kube import decoding, errors, kinds


async def test_a_long_list_leaves_turns_for_others() -> None:
    items = [{"metadata": {"name": f"n{number}"}} for number in range(1001)]
    body = json.dumps({"metadata": {"resourceVersion": "7", "continue": "t"}, "items": items})
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    page = await decoding.decode_page(kinds.NODES, body.encode())
    task.cancel()
    assert [one.name for one in page.items] == [f"n{number}" for number in range(1001)]
    assert (page.resource_version, page.next, page.remaining) == ("7", "t", 0)
    assert turns >= 4


async def test_a_list_of_nothing() -> None:
    page = await decoding.decode_page(kinds.NODES, b'{"metadata":{},"items":null}')
    assert page.items == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"items":{}}', b'{"items":[{"metadata":{"name":1}}]}']
)
async def test_what_is_no_list(body: bytes) -> None:
    with pytest.raises(errors.ServerError, match=r"nodes cannot be decoded"):
        await decoding.decode_page(kinds.NODES, body)


def test_plain_answers() -> None:
    assert decoding.plain(b'{"a":1}') == {"a": 1}
    with pytest.raises(errors.ServerError):
        decoding.plain(b"[1]")
