"""A scripted API server and a client connected to it."""

from collections.abc import AsyncIterator

import pytest
from bitts.kube import client as clients
from bitts.kube import config as configuration
from bitts.kube import credentials
from support import kubefake


@pytest.fixture
async def fake() -> AsyncIterator[kubefake.FakeApi]:
    async with kubefake.FakeApi() as server:
        yield server


@pytest.fixture
def config(fake: kubefake.FakeApi) -> configuration.Config:
    return configuration.Config(fake.url, "a test", credentials.Fixed("Bearer secret"))


@pytest.fixture
async def client(config: configuration.Config) -> AsyncIterator[clients.Client]:
    async with clients.Client.connect(config, user_agent="csi-provisioner/1.2") as connected:
        yield connected
