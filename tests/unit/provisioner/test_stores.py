import asyncio
import pathlib
import zlib

import pytest
from csi_provisioner import stores
from csi_provisioner.intents import StoreUnusableError


async def test_a_file_comes_back_as_it_was_written(tmp_path: pathlib.Path) -> None:
    store = stores.FileStore(tmp_path / "intents")
    assert await store.read() == b""
    await store.write(b"[1]")
    await store.write(b"[2]")
    assert await stores.FileStore(tmp_path / "intents").read() == b"[2]"


def test_a_file_is_replaced_as_a_whole_and_for_us_alone(tmp_path: pathlib.Path) -> None:
    asyncio.run(stores.FileStore(tmp_path / "intents").write(b"[1]"))
    assert [one.name for one in tmp_path.iterdir()] == ["intents"]
    assert (tmp_path / "intents").stat().st_mode & 0o777 == 0o600


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    store = stores.FileStore(tmp_path / "missing" / "intents")
    with pytest.raises(StoreUnusableError, match="make its folder writable"):
        await store.write(b"[]")
    assert await store.read() == b""


async def test_without_a_store_nothing_is_kept() -> None:
    store = stores.NoStore()
    await store.write(b"[1]")
    assert await store.read() == b""


@pytest.mark.parametrize("data", [b"", b"[]", b'[{"a": "b"}]' * 1000])
def test_the_annotation_holds_what_was_packed(data: bytes) -> None:
    assert stores.unpack(stores.pack(data)) == data


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", stores.pack(b"x" * 100)[:-8]])
def test_what_is_no_packed_text_is_empty(text: str) -> None:
    assert stores.unpack(text) == b""


def test_alike_entries_pack_well() -> None:
    entry = b'{"claim":{"namespace":"team","name":"data"},"parameters":{"tier":"gold"}},'
    assert len(stores.pack(entry * 1000)) < len(entry * 1000) / 20
    assert zlib.decompress(zlib.compress(entry)) == entry
