"""Every asynchronous test here runs on asyncio's loop and on uvloop: they fail differently."""

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from bitts.rpc import channel, server
from support import rpcs


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def path(short_dir: pathlib.Path) -> str:
    """Where a test's server listens."""
    return str(short_dir / "s.sock")


@pytest.fixture
def sample() -> rpcs.Sample:
    return rpcs.Sample()


@pytest.fixture
async def served(path: str, sample: rpcs.Sample) -> AsyncIterator[server.Server]:
    """A server of the sample service."""
    running = server.Server([sample], path)
    await running.start()
    yield running
    await running.stop(grace=0.0)


@pytest.fixture
async def client(served: server.Server) -> AsyncIterator[channel.Channel]:
    """A channel that is connected to the sample service."""
    opened = channel.Channel(served.socket_path)
    await opened.connect(5.0)
    yield opened
    await opened.close()
