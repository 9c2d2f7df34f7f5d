"""Fixtures of tests that need the kernel's network: always in namespaces of their own."""

import pathlib
from collections.abc import Iterator

import pytest
from support import cnidaemon, netns, processes


@pytest.fixture
def namespaces() -> Iterator[netns.Namespaces]:
    """Makes network namespaces and removes them all at the end."""
    made = netns.Namespaces()
    yield made
    made.close()


@pytest.fixture
def daemon(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    """A daemon, started, in a namespace that plays the node."""
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir)
    made.start()
    return made
