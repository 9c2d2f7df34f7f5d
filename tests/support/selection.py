"""Which tests run on which kind of cluster, and which of them one worker has to run together."""

import collections
from collections.abc import Iterator
from typing import Any

import pytest

from support import building

EMBEDDED, KUBERNETES, BOTH = "embedded", "kubernetes", "both"
KIND = "cluster_kind"
"""The fixture that says on which kind of cluster a test runs; one without it is the same on all."""

LEFT_OUT = pytest.StashKey[dict[str, int]]()
"""How many tests are left out, by what there is to say about it."""


def add_option(parser: pytest.Parser) -> None:
    """Let the command line choose the kind."""
    parser.addoption(
        "--cluster",
        choices=[EMBEDDED, KUBERNETES, BOTH],
        default=EMBEDDED,
        help="cluster that service tests run against; kubernetes: built by `make cluster`",
    )


def wants_kubernetes(config: pytest.Config) -> bool:
    """Whether tests on a full Kubernetes were asked for."""
    return bool(config.getoption("--cluster") != EMBEDDED)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make two tests of one that depends on the kind, where both were asked for."""
    if KIND in metafunc.fixturenames and metafunc.config.getoption("--cluster") == BOTH:
        metafunc.parametrize(KIND, [EMBEDDED, KUBERNETES], indirect=True, scope="session")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what each kind of cluster can judge; count the rest, with the reason."""
    reasons: collections.Counter[str] = collections.Counter()
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        reason = _reason_against(item)
        if reason:
            reasons[f"left out on {_kind(item)}: {{}} tests: {reason}"] += 1
        (dropped if reason else kept).append(item)
    items[:] = kept
    config.stash[LEFT_OUT] = dict(reasons)
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def _kind(item: pytest.Item) -> str:
    chosen: str = item.config.getoption("--cluster")
    if chosen != BOTH:
        return chosen
    callspec = getattr(item, "callspec", None)
    found: str = callspec.params.get(KIND, EMBEDDED) if callspec else EMBEDDED
    return found


def _reason_against(item: pytest.Item) -> str:
    kind = _kind(item)
    if kind == KUBERNETES and KIND not in getattr(item, "fixturenames", ()):
        return "does not depend on the kind of cluster"
    marker = item.get_closest_marker(EMBEDDED if kind == KUBERNETES else KUBERNETES)
    reason: str = marker.kwargs["reason"] if marker else ""
    return reason


def group(items: list[pytest.Item]) -> None:
    """Give to one worker what shares an expensive set-up, or would be too much at once.

    All tests on the shared Kubernetes are one group, those that start one of their own
    another; else the tests of a module whose fixtures last as long as the module.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (name := _group(item)):
            item.add_marker(pytest.mark.xdist_group(name))


def _group(item: pytest.Item) -> str:
    if _kind(item) == KUBERNETES:
        return "kubernetes"
    if building.KUBERNETES in building.wanted([item]):
        return "clusters"
    return item.path.stem if any(_module_fixtures(item)) else ""


def _module_fixtures(item: pytest.Item) -> Iterator[str]:
    information: Any = getattr(item, "_fixtureinfo", None)
    for name, definitions in (information.name2fixturedefs if information else {}).items():
        ours = definitions[-1]
        if ours.scope == "module" and ours.baseid.startswith("tests"):
            yield name


def left_out(config: pytest.Config) -> dict[str, int]:
    """Return what ``leave_out`` counted."""
    nothing: dict[str, int] = {}
    return config.stash.get(LEFT_OUT, nothing)


def report(config: pytest.Config) -> list[str]:
    """Return the lines about what was left out."""
    return [text.format(count) for text, count in sorted(left_out(config).items())]
