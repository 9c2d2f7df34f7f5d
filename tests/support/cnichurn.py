"""Containers that come and go all at once while the daemon is killed again and again.

Every worker plays a runtime with one container at a time: it attaches and detaches it, dies in
the middle, loses its namespace, or asks twice. What an ADD answered is held against what all
others hold at that moment, so that an address or port given twice is seen when it happens.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from support import cnidaemon, netns

AGAIN_LATER = 11
SUBNET = "10.88.0.0/22"
FIRST_PORT = 20000
NICENESS = 10
"""Of the daemon and its callers: so many at once would starve the tests that run beside."""
KILL_AFTER = (60, 240)
"""Finished calls between two kills of the daemon: at least, at most."""
SILENCE = 60
"""Seconds without the end of any call that are a fault; many tests may run beside."""


def configuration(daemon: cnidaemon.Daemon, worker: int) -> dict[str, Any]:
    """Return a whole chain as one call, with a port and a limit of the worker's own."""
    ipam = {"type": "host-local", "dataDir": str(daemon.ipam), "ranges": [[{"subnet": SUBNET}]]}
    mapping = {"hostPort": FIRST_PORT + worker, "containerPort": 80, "protocol": "tcp"}
    limit = {"ingressRate": 10**9, "ingressBurst": 10**7, "egressRate": 10**9, "egressBurst": 10**7}
    return daemon.config(
        "bitts",
        capabilities={"portMappings": True, "bandwidth": True},
        runtimeConfig={"portMappings": [mapping], "bandwidth": limit},
        plugins=[
            {"type": "bridge", "isDefaultGateway": True, "ipMasq": True, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "firewall"},
            {"type": "bandwidth", "capabilities": {"bandwidth": True}},
        ],
    )


class Churn:
    """Workers and what they found wrong; ``seconds`` is how long they go on."""

    def __init__(
        self, daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, *, seconds: float, seed: int
    ) -> None:
        self.daemon = daemon
        self.faults: list[str] = []
        self.counts = {"ADD": 0, "DEL": 0, "again later": 0, "kills": 0}
        self._namespaces = namespaces
        self._end = time.monotonic() + seconds
        self._drawn = random.Random(seed)
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._finished = threading.Semaphore(0)

    def run(self, workers: int) -> None:
        """Let the workers churn and kill the daemon in between; all have ended on return."""
        threads = [
            threading.Thread(target=self._guarded, args=(number, self._drawn.random()))
            for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        while self._goes_on:
            self._wait(self._drawn.randint(*KILL_AFTER))
            self.daemon.kill()
            self.daemon.start()
            self.counts["kills"] += 1
        deadline = time.monotonic() + 2 * SILENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.faults.append(f"{thread.name} does not end")

    def _wait(self, calls: int) -> None:
        """Wait until that many have ended, or the churn has: then no more may come."""
        heard = time.monotonic()
        while calls and self._goes_on:
            if self._finished.acquire(timeout=1):
                heard, calls = time.monotonic(), calls - 1
            elif time.monotonic() - heard > SILENCE:
                self.faults.append(f"no call ended within {SILENCE} s")

    @property
    def _goes_on(self) -> bool:
        return time.monotonic() < self._end and not self.faults

    def _guarded(self, number: int, seed: float) -> None:
        try:
            self._work(number, random.Random(seed))
        except Exception as error:  # noqa: BLE001  # a thread has nobody else to tell
            self.faults.append(f"worker {number}: {error!r}")

    def _work(self, number: int, drawn: random.Random) -> None:
        ways: list[Callable[..., None]] = [self._usual, self._usual, self._usual, self._cut_off]
        turn = 0
        while self._goes_on:
            turn += 1
            pod = self._namespaces.make("churn")
            about = {"pod": pod, "container": f"w{number}-{turn}", "niceness": NICENESS}
            config = configuration(self.daemon, number)
            drawn.choice(ways)(number, config, about)
            goes_first = drawn.random() < 0.2
            if goes_first:
                self._namespaces.remove(pod)
            for _ in range(drawn.choice((1, 1, 2))):
                self._detach(config, about)
            if not goes_first:
                self._namespaces.remove(pod)

    def _usual(self, number: int, config: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        outcome = self._count("ADD", self.daemon.call("ADD", config, **about))
        if outcome.status == 0:
            self._claim(outcome.document["ips"][0]["address"], number)
            previous = {**config, "prevResult": outcome.document}
            self._expect("CHECK", self.daemon.call("CHECK", previous, **about))
            self._release(number)
        else:
            self._expect("ADD", outcome)

    def _cut_off(self, _number: int, config: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """The runtime dies while it waits."""
        self.daemon.begin("ADD", config, **about).kill()

    def _detach(self, config: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        outcome = self._count("DEL", self.daemon.call("DEL", config, **about))
        if outcome.status:
            self.faults.append(f"DEL of {about['container']}: {outcome.error}")

    def _count(self, verb: str, outcome: cnidaemon.Outcome) -> cnidaemon.Outcome:
        with self._lock:
            self.counts[verb] += 1
        self._finished.release()
        return outcome

    def _expect(self, verb: str, outcome: cnidaemon.Outcome) -> None:
        """Only success, or the plea to come again, is an answer."""
        if outcome.status == 0:
            return
        if outcome.document.get("code") != AGAIN_LATER:
            self.faults.append(f"{verb}: {outcome.error}")
        with self._lock:
            self.counts["again later"] += 1

    def _claim(self, address: str, number: int) -> None:
        with self._lock:
            other = self._held.setdefault(address, number)
        if other != number:
            self.faults.append(f"{address} was given to workers {other} and {number}")

    def _release(self, number: int) -> None:
        with self._lock:
            self._held = {key: value for key, value in self._held.items() if value != number}
