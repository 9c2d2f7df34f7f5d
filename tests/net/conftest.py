"""Fixtures of tests that need the kernel's network: always in namespaces of their own."""

from collections.abc import Iterator

import pytest
from support import netns


@pytest.fixture
def namespaces() -> Iterator[netns.Namespaces]:
    """Makes network namespaces and removes them all at the end."""
    made = netns.Namespaces()
    yield made
    made.close()
