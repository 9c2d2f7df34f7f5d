"""This service's metrics, under upstream's names."""

from collections.abc import Callable

from bitts.core.metrics import Registry

from csi_provisioner import names
from csi_provisioner.intents import Journal


class Measures:
    """Counts what came of claims and PersistentVolumes."""

    def __init__(self, registry: Registry) -> None:
        self._provisioned = registry.counter(
            names.PROVISION_TOTAL,
            "Volumes made and stored, by StorageClass and kind of data source",
            ["class", "source"],
        )
        self._failed = registry.counter(
            names.PROVISION_FAILED_TOTAL,
            "Attempts to make a volume that failed, by StorageClass and kind of data source",
            ["class", "source"],
        )
        self._provision_seconds = registry.histogram(
            names.PROVISION_SECONDS,
            "Seconds of the attempt that made a volume, by StorageClass and kind of data source",
            ["class", "source"],
        )
        self._deleted = registry.counter(
            names.DELETE_TOTAL,
            "Volumes deleted together with their objects, by StorageClass",
            ["class"],
        )
        self._delete_failed = registry.counter(
            names.DELETE_FAILED_TOTAL,
            "Attempts to delete a volume that failed, by StorageClass",
            ["class"],
        )
        self._delete_seconds = registry.histogram(
            names.DELETE_SECONDS,
            "Seconds of the attempt that deleted a volume, by StorageClass",
            ["class"],
        )

    def provisioned(self, class_name: str, seconds: float) -> None:
        """A volume was made and stored; ``seconds`` is the time of the attempt."""
        self._provisioned.labels(class_name, "").inc()
        self._provision_seconds.labels(class_name, "").observe(seconds)

    def not_provisioned(self, class_name: str, source: str) -> None:
        """An attempt failed."""
        self._failed.labels(class_name, source).inc()

    def deleted(self, class_name: str, seconds: float) -> None:
        """A volume and its object are gone."""
        self._deleted.labels(class_name).inc()
        self._delete_seconds.labels(class_name).observe(seconds)

    def not_deleted(self, class_name: str) -> None:
        """An attempt failed."""
        self._delete_failed.labels(class_name).inc()


def watch_journal(registry: Registry, journal: Journal) -> None:
    """Show the intent journal; these series are ours alone."""
    figures = journal.figures
    entries = registry.gauge("bitts_intents", "Calls to the driver that are not settled yet")
    entries.set_function(lambda: journal.depth)
    commits = registry.gauge("bitts_intent_commits", "Commits of the intent journal so far")
    commits.set_function(lambda: figures.commits)
    failures = registry.gauge("bitts_intent_failures", "Commits that failed so far")
    failures.set_function(lambda: figures.failures)
    unprotected = registry.gauge(
        "bitts_intents_unprotected", "Calls so far that were made without a durable note"
    )
    unprotected.set_function(lambda: figures.unprotected)


def watch_capacity(
    registry: Registry,
    goal: Callable[[], int],
    current: Callable[[], int],
    obsolete: Callable[[], int],
) -> None:
    """Show how many CSIStorageCapacity objects there should be, are, and should not be."""
    for name, text, value in (
        (names.CAPACITY_GOAL, "CSIStorageCapacity objects that there should be", goal),
        (names.CAPACITY_CURRENT, "CSIStorageCapacity objects wanted and there", current),
        (names.CAPACITY_OBSOLETE, "CSIStorageCapacity objects to be deleted", obsolete),
    ):
        registry.gauge(name, text, stability="ALPHA").set_function(value)
