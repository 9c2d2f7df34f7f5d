"""Metrics in Prometheus' format and a health page, over HTTP, for those who want them.

Everything is read from counts that are kept anyway; a scrape costs what it prints, a daemon
that nobody scrapes nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from bitts.core import metrics
from bitts.core.httplistener import Reply
from bitts.core.serving import HttpServer

# isort: split
from prometheus_client.core import (  # after bitts.core.metrics, which loads it lean
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cni_daemon.ipam.stores import Usage
from cni_daemon.records import Entry, Phase
from cni_daemon.tally import BOUNDS, Tally

HEALTH_PATH = "/healthz"
_LE = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where numbers come from. Functions are called at each scrape and must not block."""

    tally: Tally
    entries: Callable[[], Iterable[Entry]]
    records: Callable[[], int]
    usage: Callable[[], Iterable[Usage]]
    intents: Callable[[], int]
    connections: Callable[[], int]
    leases: Callable[[], Mapping[str, int]]
    strays: Callable[[], int]


def server(endpoint: str, path: str, sources: Sources) -> HttpServer:
    """Return the listener of ``--http-endpoint``, not started."""
    registry = metrics.Registry()
    registry.register(Figures(sources))
    listener = HttpServer(endpoint)
    listener.metrics(path, registry)

    async def health(_query: Mapping[str, str]) -> Reply:
        return Reply("ok")  # this listener starts when everything is recovered

    listener.route(HEALTH_PATH, health)
    return listener


class Figures(Collector):
    """The families ``bitts_cni_*``."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """Name nothing beforehand: families are made at each scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all families as they are now."""
        yield from self._attachments()
        yield self._operations()
        yield self._events()
        yield from self._addresses()
        yield from self._queues()

    def _attachments(self) -> Iterator[Metric]:
        standing: dict[tuple[str, str], int] = {}
        unfinished = 0
        for entry in self._sources.entries():
            if entry.phase is Phase.DONE:
                key = (entry.key.network, entry.key.type)
                standing[key] = standing.get(key, 0) + 1
            else:
                unfinished += 1
        family = GaugeMetricFamily(
            "bitts_cni_attachments", "Attachments that stand", labels=["network", "plugin"]
        )
        for labels, count in standing.items():
            family.add_metric(labels, count)
        yield family
        yield GaugeMetricFamily(
            "bitts_cni_attachments_unfinished",
            "Attachments being made or removed, or whose removal has failed",
            value=unfinished,
        )
        yield GaugeMetricFamily(
            "bitts_cni_attachments_unknown",
            "Attachments that stand although the journal, lost or damaged, does not know them",
            value=self._sources.strays(),
        )

    def _operations(self) -> Metric:
        family = HistogramMetricFamily(
            "bitts_cni_operation_duration_seconds",
            "Seconds from a request to its answer; code is that of the error, 0 for success",
            labels=["plugin", "command", "code"],
        )
        for kind, times in self._sources.tally.operations.items():
            counts = [float(count) for count in accumulate(times.counts)]
            buckets = list(zip(_LE, counts, strict=True))
            family.add_metric([kind.plugin, kind.command, str(kind.code)], buckets, times.total)
        return family

    def _events(self) -> Metric:
        family = CounterMetricFamily(
            "bitts_cni_events_total", "What was put right without being asked", labels=["event"]
        )
        for event, count in self._sources.tally.events.items():
            family.add_metric([str(event)], count)
        return family

    def _addresses(self) -> Iterator[Metric]:
        used = GaugeMetricFamily(
            "bitts_cni_addresses_used", "Addresses that are taken", labels=["network"]
        )
        free = GaugeMetricFamily(
            "bitts_cni_addresses_free",
            "Addresses that can still be given; known once the network was used",
            labels=["network"],
        )
        for usage in self._sources.usage():
            used.add_metric([usage.network], usage.used)
            if usage.size is not None:
                free.add_metric([usage.network], max(usage.size - usage.used, 0))
        yield used
        yield free

    def _queues(self) -> Iterator[Metric]:
        sources = self._sources
        leases = GaugeMetricFamily("bitts_cni_leases", "DHCP leases kept", labels=["state"])
        for state, count in sources.leases().items():
            leases.add_metric([state], count)
        yield leases
        numbers = {
            "bitts_cni_requests_in_flight": ("Requests being carried out", sources.tally.in_flight),
            "bitts_cni_connections": ("Connections of shims", sources.connections()),
            "bitts_cni_intents": ("DELs that wait to be carried out", sources.intents()),
            "bitts_cni_journal_records": ("Records in the journal's file", sources.records()),
        }
        for name, (text, value) in numbers.items():
            yield GaugeMetricFamily(name, text, value=float(value))
