"""What a DEL freed that was left on disk is free for the ADD that comes after it."""

import pathlib
from typing import Any

import pytest
from support import cnichurn, cnidaemon, netns, processes

pytestmark = pytest.mark.root


@pytest.fixture
def lazy(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    """A daemon that looks after intents by itself only once an hour."""
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, "--upkeep-interval=1h")
    made.start()
    return made


def left_behind(daemon: cnidaemon.Daemon, config: dict[str, Any], pod: str) -> pathlib.Path:
    """Detach while the daemon is away; return the intent, put aside."""
    daemon.stop()
    assert daemon.call("DEL", config, pod=pod).status == 0
    (intent,) = daemon.intents
    return intent.rename(daemon.folder / intent.name)


@pytest.mark.parametrize("container", ["c1", "c2"])
def test_a_port_a_name_and_an_interface_can_be_had_again_at_once(
    container: str, lazy: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config = cnichurn.configuration(lazy, 1)
    pod, next_pod = namespaces.make("pod"), namespaces.make("next")
    assert lazy.call("ADD", config, pod=pod).status == 0
    intent = left_behind(lazy, config, pod)
    lazy.start()
    refused = lazy.call("ADD", config, pod=next_pod, container="c3")
    assert "is taken by another container" in refused.error
    intent.rename(lazy.state / "intents" / intent.name)
    added = lazy.call("ADD", config, pod=next_pod, container=container)
    assert added.status == 0, added.stdout
    assert lazy.intents == []
    checked = {**config, "prevResult": added.document}
    about = {"pod": next_pod, "container": container}
    assert lazy.call("CHECK", checked, **about).status == 0
    assert lazy.call("DEL", config, **about).status == 0
    assert cnidaemon.leftovers(lazy.host) == []
