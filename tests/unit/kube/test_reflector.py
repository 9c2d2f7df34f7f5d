"""The reflector keeps its cache right whatever a server or a network does to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from bitts.kube import cache as caches
from bitts.kube import client as clients
from bitts.kube import kinds, objects, reflector
from support import kubefake, waiting

CLAIMS = "api/v1/persistentvolumeclaims"
KIND = kinds.PERSISTENT_VOLUME_CLAIMS
Claims = caches.Cache[objects.PersistentVolumeClaim]
Start = Callable[..., Claims]


def claim(name: str, volume: str = "") -> kubefake.JsonObject:
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"volumeName": volume}}


@pytest.fixture
async def start(client: clients.Client) -> AsyncIterator[Start]:
    """Start a reflector with short pauses; returns its cache."""
    tasks: list[asyncio.Task[None]] = []

    def begin(**options: float) -> Claims:
        cache = Claims()
        feed = reflector.Reflector(client, KIND, cache, first_delay=0.01, **options)  # type: ignore[arg-type]
        tasks.append(asyncio.create_task(feed.run(), name="reflector"))
        return cache

    yield begin
    for task in tasks:
        assert not task.done(), "a reflector never ends by itself"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def watching(fake: kubefake.FakeApi, opened: int = 1) -> kubefake.Stream:
    await waiting.until(lambda: fake.opened >= opened and fake.streams, f"watch {opened} open")
    return fake.streams[-1]


def volume_is(cache: Claims, key: str, volume: str) -> Callable[[], bool]:
    def check() -> bool:
        found = cache.get(key)
        return found is not None and found.spec.volume_name == volume

    return check


async def test_lists_in_pages_then_follows_the_watch(fake: kubefake.FakeApi, start: Start) -> None:
    for number in range(7):
        fake.put(CLAIMS, claim(f"c{number}"))
    cache = start(page_size=3)
    await cache.synced.wait()
    assert len(cache) == 7
    assert [one.query.get("continue") for one in fake.requests[:3]] == [None, "3", "6"]
    stream = await watching(fake)
    assert stream.resource_version == "1007"
    assert stream.request.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(stream.request.query["timeoutSeconds"]) <= 600
    fake.put(CLAIMS, claim("c1", "pv-1"))
    fake.drop(CLAIMS, "c2", "shop")
    await waiting.until(volume_is(cache, "shop/c1", "pv-1"), "modification seen")
    await waiting.until(lambda: "shop/c2" not in cache, "deletion seen")


@pytest.mark.parametrize("ending", ["end", "cut", "half a line"])
async def test_a_watch_that_ends_is_resumed_without_a_list(
    fake: kubefake.FakeApi, start: Start, ending: str
) -> None:
    cache = start()
    stream = await watching(fake)
    fake.put(CLAIMS, claim("a"))
    await waiting.until(lambda: "shop/a" in cache, "event seen")
    stream.bookmark(1010)
    if ending == "half a line":
        stream.raw(b'{"type":"MODIFIED","object":{"metadata":{"na')
    (stream.cut if ending == "cut" else stream.end)()
    resumed = await watching(fake, 2)
    # A cut connection can lose what was under way, and only that.
    assert resumed.resource_version in ({"1001", "1010"} if ending == "cut" else {"1010"})
    assert fake.count("GET", "claims$") - fake.opened == 1, "listed once"


async def test_silence_is_a_dead_connection(fake: kubefake.FakeApi, start: Start) -> None:
    start(silence=0.2)
    await watching(fake)
    assert (await watching(fake, 2)).resource_version == "1000"


async def test_an_expired_version_is_listed_again(fake: kubefake.FakeApi, start: Start) -> None:
    fake.put(CLAIMS, claim("a"))
    fake.put(CLAIMS, claim("b"))
    cache = start()
    stream = await watching(fake)
    told: list[tuple[str, str]] = []
    cache.subscribe(
        lambda old, new: told.append((old.name if old else "", new.name if new else ""))
    )
    fake.streams.clear()  # changes that this watch never hears of
    fake.drop(CLAIMS, "a", "shop")
    fake.put(CLAIMS, claim("c"))
    fake.streams.append(stream)
    stream.send("ERROR", kubefake.status(410, "Expired"))
    await waiting.until(lambda: "shop/c" in cache, "listed again")
    assert told == [("a", ""), ("", "c")]
    assert (await watching(fake, 2)).resource_version == "1004"


async def test_an_expired_version_as_an_http_status(fake: kubefake.FakeApi, start: Start) -> None:
    cache = start()
    stream = await watching(fake)
    fake.put(CLAIMS, claim("a"))
    await waiting.until(lambda: "shop/a" in cache, "event seen")
    fake.oldest = 2000
    fake.current = 2000
    stream.end()
    assert (await watching(fake, 2)).resource_version == "2000"


async def test_pages_that_expire_are_replaced_by_one_whole_list(
    fake: kubefake.FakeApi, start: Start
) -> None:
    for number in range(5):
        fake.put(CLAIMS, claim(f"c{number}"))
    fake.fail(path="continue=", status=410, reason="Expired")
    cache = start(page_size=2)
    await cache.synced.wait()
    assert len(cache) == 5
    assert [one.query.get("limit") for one in fake.seen("GET")[:3]] == ["2", "2", None]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503, "body": b"<html>gateway</html>", "content_type": "text/html"},
        {"status": 200, "body": b"<html>log in</html>", "content_type": "text/html"},
        {"status": 500, "reason": "InternalError"},
        {"status": 403, "reason": "Forbidden"},
        {"status": 200, "body": b"no event\n"},
        {"status": 200, "body": b'{"type":"ODD","object":{}}\n'},
        {"cut": "before"},
    ],
    ids=["html-503", "html-200", "status", "forbidden", "garbage", "odd-type", "cut"],
)
async def test_a_failing_watch_is_tried_again_and_heals(
    fake: kubefake.FakeApi, start: Start, fault: dict[str, object]
) -> None:
    fake.fail(path="watch=true", times=2, **fault)
    cache = start()
    await watching(fake)
    fake.put(CLAIMS, claim("a"))
    await waiting.until(lambda: "shop/a" in cache, "event seen")
    assert fake.count("GET", "claims$") == 4, "one list, three watches"


async def test_a_server_that_dislikes_the_version_for_long_is_listed_again(
    fake: kubefake.FakeApi, start: Start
) -> None:
    fake.fail(path="watch=true", times=5, status=504, reason="Timeout")
    start()
    await watching(fake)
    lists = [one for one in fake.seen("GET") if "watch" not in one.query]
    assert len(lists) == 2


async def test_watches_that_end_at_once_do_not_spin(fake: kubefake.FakeApi, start: Start) -> None:
    fake.fail(path="watch=true", times=1000, status=200, body=b"")
    start()
    await waiting.until(lambda: fake.count("GET") >= 7, "several attempts")
    # 0.01 s doubling each time: seven attempts are followed by a pause of half a second.
    assert fake.count("GET") < 12
