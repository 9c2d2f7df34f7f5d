"""Prometheus metrics under the names and in the shape that Kubernetes components give them.

One registry per process: two with the same family made upstream's endpoint answer 500. Bounds
of buckets are written as Go writes them (``le="10"``), since dashboards select by them.
"""

import collections
import contextlib
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from bitts.core import lean, workqueue

# Its writers bring http.server, wsgiref and urllib.request (4 MB); ours is below.
_writers = types.ModuleType("prometheus_client.exposition")
_writers.__dict__["__getattr__"] = lambda name: None
lean.load("prometheus_client", instead={"prometheus_client.exposition": _writers})

# isort: split
from prometheus_client import (  # noqa: E402
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
)
from prometheus_client.core import (  # noqa: E402
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    Sample,
)
from prometheus_client.registry import Collector  # noqa: E402

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ALPHA, BETA = "ALPHA", "BETA"
"""Kubernetes' stabilities of metrics, which precede their help texts; our own have none."""

CSI_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
"""Seconds; the bounds of ``csi_sidecar_operations_seconds``."""

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Seconds; Go's default bounds."""

UNKNOWN_DRIVER = "unknown-driver"
"""The driver's name in samples of calls made before it was known."""

_QUEUE_BOUNDS = (*(f"{bound:g}" for bound in workqueue.DURATION_BUCKETS), "+Inf")
_EXACT = 1e15  # whole numbers below it are written without exponent


class Registry:
    """The metrics of one process. Names must be unique; a second family of a name is an error."""

    def __init__(self, *, process: bool = True) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        self._queues: _Queues | None = None
        self._stabilities: collections.Counter[str] = collections.Counter()
        if process:
            self._registry.register(_Process(registry=None))
            self._stabilities[ALPHA] += 1

    def counter(
        self, name: str, help: str, labels: Sequence[str] = (), *, stability: str = ""
    ) -> Counter:
        """Make a counter; its name ends in ``_total``. ``stability`` is one of Kubernetes."""
        self._stabilities[stability] += 1
        return Counter(name, _help(help, stability), labels, registry=self._registry)

    def gauge(
        self, name: str, help: str, labels: Sequence[str] = (), *, stability: str = ""
    ) -> Gauge:
        """Make a gauge; ``set_function`` gives it a value computed when scraped."""
        self._stabilities[stability] += 1
        return Gauge(name, _help(help, stability), labels, registry=self._registry)

    def histogram(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = DEFAULT_BUCKETS,
        stability: str = "",
    ) -> Histogram:
        """Make a histogram with the given upper bounds."""
        self._stabilities[stability] += 1
        return Histogram(
            name, _help(help, stability), labels, buckets=buckets, registry=self._registry
        )

    def queue(self, queue: workqueue.WorkQueue) -> None:
        """Show ``queue`` in the ``workqueue_*`` families; costs nothing until scraped."""
        if self._queues is None:
            self._queues = _Queues()
            self._registry.register(self._queues)
            self._stabilities[BETA] += _Queues.FAMILIES
        self._queues.add(queue)

    def registrations(self) -> None:
        """Show how many families there are, as the programs of Kubernetes do.

        None is ever hidden or disabled here: no flag of a sidecar says so.
        """
        self._stabilities[BETA] += len(_Registrations.NAMES)
        self._registry.register(_Registrations(self._stabilities))

    def register(self, collector: Collector) -> None:
        """Add a collector of one's own."""
        self._registry.register(collector)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format 0.0.4."""
        return "".join(_lines(self._registry.collect())).encode()


class CsiOperations:
    """``csi_sidecar_operations_seconds``: how long each call to the driver took.

    ``migrated`` adds the label of that name, for drivers that took over from in-tree plugins.
    """

    def __init__(self, registry: Registry, *, migrated: bool = False) -> None:
        labels = ["driver_name", "method_name", "grpc_status_code"]
        self._migrated = migrated
        self._histogram = registry.histogram(
            "csi_sidecar_operations_seconds",
            "Duration of calls to the CSI driver, by method and gRPC status code",
            [*labels, "migrated"] if migrated else labels,
            buckets=CSI_BUCKETS,
            stability=ALPHA,
        )
        self._children: dict[tuple[str, ...], Histogram] = {}

    def observe(
        self, driver: str, method: str, code: str, seconds: float, *, migrated: bool = False
    ) -> None:
        """Count one call: ``method`` is the full gRPC path, ``code`` is spelled as in Go."""
        names: tuple[str, ...] = (driver or UNKNOWN_DRIVER, method, code)
        if self._migrated:
            names = (*names, "true" if migrated else "false")
        child = self._children.get(names)
        if child is None:
            child = self._children[names] = self._histogram.labels(*names)
        child.observe(seconds)


class LeaderElectionMetrics:
    """client-go's two series. Their label is empty: upstream never fills it in."""

    def __init__(self, registry: Registry) -> None:
        status = registry.gauge(
            "leader_election_master_status",
            "Whether this process holds the Lease: 1 if so, else 0",
            ["name"],
            stability=ALPHA,
        )
        slowpath = registry.counter(
            "leader_election_slowpath_total",
            "How often the Lease had to be read before it could be renewed",
            ["name"],
            stability=ALPHA,
        )
        self._status = status.labels("")
        self._slowpath = slowpath.labels("")

    def leading(self, *, leader: bool) -> None:
        """Note whether this process leads."""
        self._status.set(1 if leader else 0)

    def slow(self) -> None:
        """Count a renewal that needed a read first."""
        self._slowpath.inc()


class Scrapes:
    """The series that Go's handler keeps about itself; dashboards see from them who scrapes."""

    def __init__(self, registry: Registry) -> None:
        self._in_flight = registry.gauge(
            "promhttp_metric_handler_requests_in_flight", "Scrapes being answered"
        )
        total = registry.counter(
            "promhttp_metric_handler_requests_total", "Scrapes answered, by HTTP status", ["code"]
        )
        self._answered, self._failed, _ = (total.labels(code) for code in ("200", "500", "503"))

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count what happens inside as one scrape."""
        with self._in_flight.track_inprogress():
            try:
                yield
            except Exception:
                self._failed.inc()
                raise
        self._answered.inc()


class _Process(ProcessCollector):
    """``process_*``, with the help prefix that Kubernetes' own series has."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            if family.name == "process_start_time_seconds":
                family.documentation = _help(family.documentation, ALPHA)
            yield family


class _Registrations(Collector):
    """The three families with which Kubernetes counts those that have a stability."""

    NAMES = ("registered_metrics_total", "hidden_metrics_total", "disabled_metrics_total")

    def __init__(self, stabilities: Mapping[str, int]) -> None:
        self._stabilities = stabilities

    def collect(self) -> Iterator[Metric]:
        registered, hidden, disabled = self.NAMES
        labels = ["stability_level", "deprecated_version"]
        text = _help("Families of metrics, by stability and version of their deprecation", BETA)
        family = CounterMetricFamily(registered, text, labels=labels)
        for stability in filter(None, sorted(self._stabilities)):
            family.add_metric([stability, ""], self._stabilities[stability])
        yield family
        yield CounterMetricFamily(hidden, _help("Families that are hidden", BETA), 0.0)
        yield CounterMetricFamily(disabled, _help("Families that are disabled", BETA), 0.0)


class _Queues(Collector):
    """The ``workqueue_*`` families of all queues."""

    FAMILIES = 7
    """How many of them are Kubernetes' own."""

    def __init__(self) -> None:
        self._queues: dict[str, workqueue.WorkQueue] = {}

    def add(self, queue: workqueue.WorkQueue) -> None:
        if queue.name in self._queues:
            raise ValueError(f"two work queues are called {queue.name}")
        self._queues[queue.name] = queue

    def collect(self) -> Iterator[Metric]:
        yield self._gauge("workqueue_depth", "Keys waiting for a worker", lambda q: q.depth)
        yield self._gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work in progress, over all workers",
            lambda q: sum(q.work_ages()),
        )
        yield self._gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds that the longest running worker has been at its key",
            lambda q: max(q.work_ages(), default=0.0),
        )
        yield self._counter("workqueue_adds_total", "Keys added", lambda queue: queue.figures.adds)
        yield self._counter(
            "workqueue_retries_total",
            "Keys added with a delay",
            lambda queue: queue.figures.retries,
        )
        yield self._durations(
            "workqueue_queue_duration_seconds",
            "Seconds that keys waited for a worker",
            lambda queue: queue.figures.waits,
        )
        yield self._durations(
            "workqueue_work_duration_seconds",
            "Seconds that work on a key took",
            lambda queue: queue.figures.work,
        )
        yield self._gauge(
            "bitts_workqueue_oldest_wait_seconds",
            "Seconds that the next key has been waiting for a worker",
            lambda q: q.oldest_wait,
            stability="",
        )
        yield self._gauge(
            "bitts_workqueue_delayed",
            "Keys waiting for their time",
            lambda q: q.delayed,
            stability="",
        )
        yield self._gauge(
            "bitts_workqueue_failing", "Keys failed since they last succeeded",
            lambda q: q.retrying, stability="",
        )  # fmt: skip

    def _gauge(
        self,
        name: str,
        text: str,
        value: Callable[[workqueue.WorkQueue], float],
        *,
        stability: str = BETA,
    ) -> Metric:
        family = GaugeMetricFamily(name, _help(text, stability), labels=["name"])
        for queue in self._queues.values():
            family.add_metric([queue.name], value(queue))
        return family

    def _counter(
        self, name: str, text: str, value: Callable[[workqueue.WorkQueue], float]
    ) -> Metric:
        family = CounterMetricFamily(name, _help(text, BETA), labels=["name"])
        for queue in self._queues.values():
            family.add_metric([queue.name], value(queue))
        return family

    def _durations(
        self, name: str, text: str, value: Callable[[workqueue.WorkQueue], workqueue.Durations]
    ) -> Metric:
        family = HistogramMetricFamily(name, _help(text, BETA), labels=["name"])
        for queue in self._queues.values():
            durations = value(queue)
            counts = [float(count) for count in accumulate(durations.counts)]
            family.add_metric(
                [queue.name], list(zip(_QUEUE_BOUNDS, counts, strict=True)), durations.total
            )
        return family


def _help(text: str, stability: str) -> str:
    return f"[{stability}] {text}" if stability else text


def _lines(families: Iterable[Metric]) -> Iterator[str]:
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        kind = "untyped" if family.type == "unknown" else family.type
        text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        created = f"{family.name}_created"  # OpenMetrics' own; Go's format has none
        for sample in family.samples:
            if sample.name != created:
                yield _line(sample)


def _line(sample: Sample) -> str:
    labels = ",".join(
        f'{key}="{_bound(value) if key == "le" else _escaped(value)}"'
        for key, value in sample.labels.items()
    )
    return (
        f"{sample.name}{{{labels}}} {_number(float(sample.value))}\n"
        if labels
        else (f"{sample.name} {_number(float(sample.value))}\n")
    )


def _bound(text: str) -> str:
    return text.removesuffix(".0")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
