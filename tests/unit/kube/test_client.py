"""The client against a server on a real socket."""

from collections.abc import AsyncIterator

import pytest
from bitts.kube import client as clients
from bitts.kube import config as configuration
from bitts.kube import credentials, kinds
from support import kubefake

PVCS = "api/v1/persistentvolumeclaims"
CLAIM = {"metadata": {"name": "cart", "namespace": "shop"}, "spec": {"volumeName": "pv-1"}}


def configured(url: str) -> configuration.Config:
    return configuration.Config(url, "a test", credentials.Fixed("Bearer secret"))


@pytest.fixture
async def fake() -> AsyncIterator[kubefake.FakeApi]:
    async with kubefake.FakeApi() as server:
        yield server


@pytest.fixture
async def client(fake: kubefake.FakeApi) -> AsyncIterator[clients.Client]:
    async with clients.Client.connect(
        configured(fake.url), user_agent="csi-provisioner/1.2"
    ) as connected:
        yield connected


async def test_get_decodes_and_identifies_us(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(PVCS, CLAIM)
    found = await client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "cart", "shop")
    assert (found.key, found.spec.volume_name) == ("shop/cart", "pv-1")
    headers = fake.requests[0].headers
    assert headers["User-Agent"] == "csi-provisioner/1.2"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Accept-Encoding"] == "identity"
