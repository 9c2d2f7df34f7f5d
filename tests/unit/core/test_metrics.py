"""Metrics as a scraper reads them."""

import math
from collections.abc import Mapping

import pytest
from bitts.core import metrics, workqueue
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from support.virtualtime import VirtualClock


def lines(registry: metrics.Registry) -> list[str]:
    return registry.render().decode().splitlines()


def samples(registry: metrics.Registry) -> Mapping[str, float]:
    """Return every sample by its name and labels, as an independent parser reads them."""
    return {
        sample.name + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())):
            sample.value
        for family in text_string_to_metric_families(registry.render().decode())
        for sample in family.samples
    }  # fmt: skip


@pytest.fixture
def registry() -> metrics.Registry:
    return metrics.Registry(process=False)


def test_a_counter(registry: metrics.Registry) -> None:
    counter = registry.counter("provision_total", "Volumes made", ["class"])
    counter.labels("fast").inc()
    assert lines(registry) == [
        "# HELP provision_total Volumes made",
        "# TYPE provision_total counter",
        'provision_total{class="fast"} 1',
    ]


def test_a_gauge_with_a_stability(registry: metrics.Registry) -> None:
    registry.gauge("goal", "Wanted", stability="ALPHA").set(2.5)
    assert lines(registry) == ["# HELP goal [ALPHA] Wanted", "# TYPE goal gauge", "goal 2.5"]


def test_bounds_are_written_as_in_go(registry: metrics.Registry) -> None:
    registry.histogram("duration_seconds", "x", buckets=(0.5, 1, 10)).observe(5)
    assert lines(registry)[2:] == [
        'duration_seconds_bucket{le="0.5"} 0',
        'duration_seconds_bucket{le="1"} 0',
        'duration_seconds_bucket{le="10"} 1',
        'duration_seconds_bucket{le="+Inf"} 1',
        "duration_seconds_count 1",
        "duration_seconds_sum 5",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e20, "1e+20"), (-3.0, "-3")],
)
def test_numbers(registry: metrics.Registry, value: float, text: str) -> None:
    registry.gauge("x", "y").set(value)
    assert lines(registry)[-1] == f"x {text}"


@given(st.text(), st.floats(allow_nan=False))
def test_any_label_and_value_can_be_parsed_back(label: str, value: float) -> None:
    registry = metrics.Registry(process=False)
    registry.gauge("x", "two\nlines \\", ["label"]).labels(label).set(value)
    assert samples(registry) == {f"x label={label}": value}


def test_two_families_of_one_name_are_refused(registry: metrics.Registry) -> None:
    registry.gauge("x", "y")
    with pytest.raises(ValueError, match="x"):
        registry.counter("x", "z")


def test_process_metrics() -> None:
    registry = metrics.Registry()
    found = samples(registry)
    assert found["process_start_time_seconds"] > 1.7e9
    assert found["process_resident_memory_bytes"] > 1e6
    assert any(
        line.startswith("# HELP process_start_time_seconds [ALPHA] ") for line in lines(registry)
    )


def test_families_are_counted_by_stability(registry: metrics.Registry) -> None:
    registry.gauge("ours", "no stability, not counted")
    registry.registrations()
    metrics.LeaderElectionMetrics(registry)
    registry.queue(workqueue.WorkQueue("claims"))
    found = samples(registry)
    assert found["registered_metrics_total deprecated_version= stability_level=ALPHA"] == 2
    kubernetes = [line for line in lines(registry) if "[BETA]" in line]
    label = "registered_metrics_total deprecated_version= stability_level=BETA"
    assert found[label] == len(kubernetes) == 10
    assert (found["hidden_metrics_total"], found["disabled_metrics_total"]) == (0, 0)
    assert "# TYPE hidden_metrics_total counter" in lines(registry)


def test_a_collector_of_ones_own(registry: metrics.Registry) -> None:
    class Empty(Collector):
        def collect(self) -> list[Metric]:
            return []

    registry.register(Empty())
    assert lines(registry) == []


def test_calls_to_the_driver(registry: metrics.Registry) -> None:
    operations = metrics.CsiOperations(registry)
    operations.observe("", "/csi.v1.Identity/Probe", "OK", 0.01)
    for _ in range(2):
        operations.observe("d.example", "/csi.v1.Controller/CreateVolume", "Aborted", 7)
    found = samples(registry)
    probe = " driver_name=unknown-driver grpc_status_code=OK"
    assert (
        found[f"csi_sidecar_operations_seconds_count{probe} method_name=/csi.v1.Identity/Probe"]
        == 1
    )
    create = " driver_name=d.example grpc_status_code=Aborted"
    method = " method_name=/csi.v1.Controller/CreateVolume"
    bucket = f"csi_sidecar_operations_seconds_bucket{create}"
    assert (found[f"{bucket} le=5{method}"], found[f"{bucket} le=10{method}"]) == (0, 2)
    bounds = [line.split('le="')[1].split('"')[0] for line in lines(registry) if 'OK",le="' in line]
    assert " ".join(bounds) == "0.1 0.25 0.5 1 2.5 5 10 15 25 50 120 300 600 +Inf"
    assert lines(registry)[0].startswith("# HELP csi_sidecar_operations_seconds [ALPHA] ")


def test_calls_to_a_driver_that_took_over_from_an_in_tree_plugin(
    registry: metrics.Registry,
) -> None:
    operations = metrics.CsiOperations(registry, migrated=True)
    operations.observe("d", "/m", "OK", 1)
    operations.observe("d", "/m", "OK", 1, migrated=True)
    counts = [line for line in lines(registry) if "_count" in line]
    labels = 'driver_name="d",method_name="/m",grpc_status_code="OK",migrated='
    assert counts == [
        f'csi_sidecar_operations_seconds_count{{{labels}"false"}} 1',
        f'csi_sidecar_operations_seconds_count{{{labels}"true"}} 1',
    ]


def test_leader_election(registry: metrics.Registry) -> None:
    election = metrics.LeaderElectionMetrics(registry)
    election.leading(leader=True)
    election.slow()
    assert 'leader_election_master_status{name=""} 1' in lines(registry)
    assert 'leader_election_slowpath_total{name=""} 1' in lines(registry)
    election.leading(leader=False)
    assert 'leader_election_master_status{name=""} 0' in lines(registry)


async def test_queues(registry: metrics.Registry) -> None:
    clock = VirtualClock()
    claims = workqueue.WorkQueue("claims", clock=clock)
    registry.queue(claims)
    registry.queue(workqueue.WorkQueue("volumes", clock=clock))
    for key in ("a", "b", "c"):
        claims.add(key)
    clock.advance(0.5)
    for _ in range(2):
        await claims.get()
    clock.advance(2)
    claims.retry("a")
    claims.done("a")
    found = samples(registry)

    def of(name: str, labels: str = "") -> float:
        return found[f"{name}{labels} name=claims"]

    assert of("workqueue_depth") == 1
    assert found["workqueue_depth name=volumes"] == 0
    assert of("workqueue_adds_total") == 3
    assert of("workqueue_retries_total") == 1
    assert of("workqueue_unfinished_work_seconds") == 2
    assert of("workqueue_longest_running_processor_seconds") == 2
    assert of("workqueue_queue_duration_seconds_sum") == 1
    assert of("workqueue_queue_duration_seconds_bucket", " le=0.1") == 0
    assert of("workqueue_queue_duration_seconds_bucket", " le=1") == 2
    assert of("workqueue_work_duration_seconds_bucket", " le=10") == 1
    assert of("bitts_workqueue_oldest_wait_seconds") == 2.5
    assert of("bitts_workqueue_delayed") == 1
    assert of("bitts_workqueue_failing") == 1
    bounds = [
        line.split('le="')[1].split('"')[0]
        for line in lines(registry)
        if line.startswith('workqueue_work_duration_seconds_bucket{name="claims"')
    ]
    assert " ".join(bounds) == "1e-08 1e-07 1e-06 1e-05 0.0001 0.001 0.01 0.1 1 10 +Inf"
    assert "# HELP workqueue_depth [BETA] Keys waiting for a worker" in lines(registry)


def test_two_queues_of_one_name_are_refused(registry: metrics.Registry) -> None:
    registry.queue(workqueue.WorkQueue("claims"))
    with pytest.raises(ValueError, match="two work queues are called claims"):
        registry.queue(workqueue.WorkQueue("claims"))
