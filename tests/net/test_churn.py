"""64 containers come and go at once while the daemon is killed: no leak, nothing given twice.

``BITTS_CHURN`` is for how many seconds; the soak run goes on for ten minutes.
"""

import os
import pathlib

import pytest
from support import cnichurn, cnidaemon, netns, processes, waiting

pytestmark = [pytest.mark.root, pytest.mark.slow]

SECONDS = float(os.environ.get("BITTS_CHURN", "60"))
AT_ONCE = 64


@pytest.mark.timeout(SECONDS + 240)
def test_nothing_leaks_and_nothing_is_given_twice(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    flag = f"--nice={cnichurn.NICENESS}"
    daemon = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, flag)
    daemon.start()
    churn = cnichurn.Churn(
        daemon, namespaces, seconds=SECONDS, seed=int(os.environ.get("BITTS_SEED", "1"))
    )
    churn.run(AT_ONCE)
    assert churn.faults == [], churn.counts
    assert churn.counts["kills"] > 0
    assert churn.counts["ADD"] > AT_ONCE
    waiting.until_blocking(lambda: not daemon.intents, "what was asked without a daemon")
    assert daemon.addresses() == {}
    assert cnidaemon.leftovers(daemon.host) == []
