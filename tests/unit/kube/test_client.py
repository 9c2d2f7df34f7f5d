"""The client against a server on a real socket."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from bitts.kube import client as clients
from bitts.kube import config as configuration
from bitts.kube import errors, kinds, pacing, patches
from support import kubefake, waiting

CLAIMS = "api/v1/persistentvolumeclaims"
KIND = kinds.PERSISTENT_VOLUME_CLAIMS


def claim(name: str = "cart", **metadata: object) -> kubefake.JsonObject:
    return {"metadata": {"name": name, "namespace": "shop", **metadata}, "spec": {"volumeName": ""}}


async def test_get_decodes_and_says_who_we_are(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(CLAIMS, claim())
    assert (await client.get(KIND, "cart", "shop")).key == "shop/cart"
    headers = fake.requests[0].headers
    assert headers["User-Agent"] == "csi-provisioner/1.2"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Accept-Encoding"] == "identity"


async def test_what_is_not_there_is_not_found(client: clients.Client) -> None:
    with pytest.raises(errors.NotFound, match=r"GET /api/v1/namespaces/shop/.*cart: .*\(404"):
        await client.get(KIND, "cart", "shop")


async def test_lists_come_in_pages_or_whole(fake: kubefake.FakeApi, client: clients.Client) -> None:
    for number in range(5):
        fake.put(CLAIMS, claim(f"c{number}"))
    pages = [page async for page in client.list(KIND, "shop", label_selector="a=b", limit=2)]
    assert [(len(page.items), page.remaining) for page in pages] == [(2, 3), (2, 1), (1, 0)]
    assert fake.requests[1].query == {"labelSelector": "a=b", "limit": "2", "continue": "2"}
    whole = await client.list_all(KIND, limit=2, field_selector="metadata.name=x")
    assert [one.name for one in whole.items] == ["c0", "c1", "c2", "c3", "c4"]
    assert whole.resource_version == "1005"
    assert (await client.list_all(kinds.NODES)).items == []


async def test_create_fills_in_the_type_and_the_field_manager(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    made = await client.create(KIND, claim(), "shop")
    assert made.uid
    sent = fake.requests[0]
    assert (sent.body["apiVersion"], sent.body["kind"]) == ("v1", "PersistentVolumeClaim")
    assert sent.query == {"fieldManager": "csi-provisioner"}
    with pytest.raises(errors.AlreadyExists):
        await client.create(KIND, claim(), "shop", field_manager="other")
    assert fake.requests[1].query == {"fieldManager": "other"}


async def test_patch_and_its_guard(fake: kubefake.FakeApi, client: clients.Client) -> None:
    fake.put(CLAIMS, claim())
    changed = await client.patch(
        KIND, "cart", patches.annotations({"a": "1"}), "shop", subresource="status"
    )
    assert changed.metadata.annotations == {"a": "1"}
    assert fake.requests[0].content_type == "application/merge-patch+json"
    assert fake.requests[0].path.endswith("/cart/status")
    stale = patches.annotations({"a": "2"}, resource_version="1")
    with pytest.raises(errors.Conflict):
        await client.patch(KIND, "cart", stale, "shop")


async def test_replace_sends_back_what_an_untyped_read_gave(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(CLAIMS, claim() | {"unknown": 1})
    body = await client.get(KIND.untyped(), "cart", "shop")
    body["spec"]["volumeName"] = "pv-1"
    replaced = await client.replace(KIND.untyped(), "cart", body, "shop")
    assert (replaced["unknown"], replaced["spec"]["volumeName"]) == (1, "pv-1")


async def test_delete_tells_whether_the_object_is_gone(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(CLAIMS, claim("plain"))
    fake.put(CLAIMS, claim("kept", finalizers=["x"]))
    assert await client.delete(KIND, "plain", "shop") is None
    waiting_one = await client.delete(KIND, "kept", "shop", propagation="Background")
    assert waiting_one is not None
    assert waiting_one.deleting
    with pytest.raises(errors.Conflict):
        await client.delete(KIND, "kept", "shop", uid="another", resource_version="1")
    assert fake.requests[-1].body["preconditions"] == {"uid": "another", "resourceVersion": "1"}
    with pytest.raises(errors.NotFound):
        await client.delete(KIND, "plain", "shop")


async def test_deleting_a_kind_that_answers_with_the_last_object(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    body = b'{"kind":"PersistentVolume","metadata":{"name":"pv","uid":"u"}}'
    fake.fail(method="DELETE", status=200, body=body)
    assert await client.delete(kinds.PERSISTENT_VOLUMES, "pv") is None


async def test_discovery(fake: kubefake.FakeApi, client: clients.Client) -> None:
    assert await client.server_version() == "v1.37.2"
    fake.fail(path="/apis/s/v1$", times=2, status=200, body=b'{"resources":[{"name":"things"}]}')
    assert await client.has_resource("s", "v1", "things")
    assert not await client.has_resource("s", "v1", "others")
    fake.fail(path="/apis/t/v1$", status=404, reason="NotFound")
    assert not await client.has_resource("t", "v1", "things")


async def test_a_refused_write_is_sent_again_after_the_time_asked_for(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.fail(
        method="POST", times=2, status=429, reason="TooManyRequests", headers={"Retry-After": "0"}
    )
    await client.create(KIND, claim(), "shop")
    assert fake.count("POST") == 3
    assert client.pacing.figures().overloads == 2
    assert client.pacing.figures().limit < 64


async def test_refusals_without_end_are_reported(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.fail(times=99, status=429, reason="TooManyRequests", headers={"Retry-After": "0"})
    with pytest.raises(errors.Throttled):
        await client.get(KIND, "cart", "shop")
    assert fake.count("GET") == 5


async def test_a_read_is_repeated_when_the_connection_breaks(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(CLAIMS, claim())
    # aiohttp itself repeats once what it sent over a connection that was kept open.
    fake.fail(method="GET", times=2, cut="before")
    assert (await client.get(KIND, "cart", "shop")).name == "cart"


async def test_a_write_whose_answer_is_lost_is_not_repeated(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.fail(method="POST", cut="after")
    with pytest.raises(errors.AnswerLost):
        await client.create(KIND, claim(), "shop")
    assert fake.count("POST") == 1
    assert (await client.get(KIND, "cart", "shop")).name == "cart", "and it was executed"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_no_write_is_repeated_on_a_connection_that_was_used_before(
    fake: kubefake.FakeApi, client: clients.Client, method: str
) -> None:
    await client.create(KIND, claim(), "shop")
    fake.fail(method=method, cut="after")
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "PUT": lambda: client.replace(KIND, "cart", claim(), "shop"),
        "DELETE": lambda: client.delete(KIND, "cart", "shop"),
    }
    with pytest.raises(errors.AnswerLost):
        await writes[method]()
    assert fake.count(method) == 1


async def test_silence_ends_at_the_time_limit(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.fail(silent=True)
    with pytest.raises(errors.AnswerLost, match="time limit"):
        await client.get(KIND, "cart", "shop", timeout=0.1)
    assert fake.count("GET") == 1


async def test_nobody_listening_is_unreachable(config: configuration.Config) -> None:
    closed = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    nowhere = dataclasses.replace(config, server=f"http://127.0.0.1:{port}")
    async with clients.Client.connect(nowhere, user_agent="x") as client:
        with pytest.raises(errors.Unreachable, match="no connection"):
            await client.create(KIND, claim(), "shop")


@pytest.mark.parametrize(
    ("status", "content_type"), [(200, "text/html"), (302, "text/html"), (200, "application/json")]
)
async def test_an_answer_of_somebody_else_is_a_server_error(
    fake: kubefake.FakeApi, client: clients.Client, status: int, content_type: str
) -> None:
    fake.fail(status=status, body=b"<html>log in</html>", content_type=content_type)
    with pytest.raises(errors.ServerError):
        await client.get(KIND, "cart", "shop")


async def test_a_field_of_the_wrong_type_is_named(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.fail(status=200, body=b'{"metadata":{"name":"a"},"spec":{"volumeName":7}}')
    with pytest.raises(errors.ServerError, match="volumeName"):
        await client.get(KIND, "cart", "shop")


async def test_every_attempt_is_observed(
    fake: kubefake.FakeApi, config: configuration.Config
) -> None:
    told: list[tuple[str, str, int]] = []
    fake.fail(status=429, headers={"Retry-After": "0"})
    async with clients.Client.connect(
        config,
        user_agent="x",
        observer=lambda verb, what, code, _took: told.append((verb, what, code)),
    ) as client:
        await client.create(KIND, claim(), "shop")
    assert told == [("POST", KIND.resource, 429), ("POST", KIND.resource, 200)]


async def test_requests_in_flight_are_bounded(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(CLAIMS, claim())
    fake.gate.clear()
    reads = [asyncio.create_task(client.get(KIND, "cart", "shop")) for _ in range(90)]
    await waiting.until(lambda: fake.in_flight == 64, "as many as may be in flight")
    assert client.pacing.figures().waiting_user == 26
    fake.gate.set()
    await asyncio.gather(*reads)
    assert fake.count("GET") == 90


async def test_a_watch_needs_no_place(fake: kubefake.FakeApi, config: configuration.Config) -> None:
    narrow = pacing.Pacing.from_flags(1000, 1000)
    async with (
        clients.Client.connect(config, user_agent="x", pacing=narrow) as client,
        client.watch(KIND, "1000") as events,
    ):
        fake.put(CLAIMS, claim())
        event = await anext(events)
        assert event.object is not None
        assert (event.change.value, event.object.key) == ("ADDED", "shop/cart")
        assert narrow.figures().in_flight == 0


async def test_errors_of_the_reader_of_a_watch_stay_its_own(client: clients.Client) -> None:
    with pytest.raises(OSError, match="mine"):
        async with client.watch(KIND, "1000"):
            raise OSError("mine")
