"""The notation of traces: what counts as the same, and what does not."""

import pytest
from support import tracefacts, traces

WANTED = """
claim data by kube-controller-manager
    phase=Bound
    capacity=1Mi
~node NODE
    in use kubernetes.io/csi/DRIVER^*
claim data
    gone
"""
BOUND = traces.Step("claim data", "kube-controller-manager", ("capacity=1Mi", "phase=Bound"))
IN_USE = traces.Step("node NODE", "kubelet", ("in use kubernetes.io/csi/DRIVER^a",))
GONE = traces.Step("claim data", "", ("gone",))


@pytest.mark.parametrize(
    ("seen", "same"),
    [
        pytest.param([BOUND, IN_USE, GONE], True, id="in order"),
        pytest.param([BOUND, GONE, IN_USE], True, id="a step that may be anywhere"),
        pytest.param([GONE, BOUND, IN_USE], False, id="another order"),
        pytest.param([BOUND, GONE], False, id="a step is missing"),
        pytest.param([BOUND, BOUND, IN_USE, GONE], False, id="a step too many"),
        pytest.param(
            [traces.Step("claim data", "kubelet", BOUND.what), IN_USE, GONE], False, id="by another"
        ),
        pytest.param(
            [traces.Step("claim data", "", BOUND.what), IN_USE, GONE], True, id="by nobody knows"
        ),
        pytest.param(
            [traces.Step("claim data", "", BOUND.what[:1]), IN_USE, GONE], False, id="a fact less"
        ),
    ],
)
def test_traces_are_compared_step_by_step(seen: list[traces.Step], same: bool) -> None:
    assert traces.agree(traces.parse(WANTED), seen) is same


def test_a_difference_is_shown_line_by_line() -> None:
    text = traces.compare(traces.parse(WANTED), [BOUND])
    assert "- claim data" in text
    assert "  claim data by kube-controller-manager" in text


CLAIM = {
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "data",
        "finalizers": ["a/b"],
        "managedFields": [
            {
                "manager": "devcluster-node",
                "subresource": "status",
                "time": "2026-01-02T03:04:05Z",
                "fieldsV1": {"f:status": {"f:phase": {}}},
            }
        ],
    },
    "spec": {},
    "status": {"phase": "Bound"},
}


def test_a_write_is_told_by_what_it_changed_and_who_owns_that() -> None:
    old = {**CLAIM, "metadata": {"finalizers": ["a/b", "c/d"]}, "status": {"phase": "Pending"}}
    words, paths = tracefacts.difference(old, CLAIM)
    assert sorted(words) == ["-finalizer c/d", "phase=Bound"]
    assert traces.owners(CLAIM, paths) == {"kubelet/status"}


def test_what_is_not_followed_makes_no_step() -> None:
    labelled = {**CLAIM, "metadata": {**CLAIM["metadata"], "labels": {"a": "b"}}}  # type: ignore[dict-item]
    assert tracefacts.difference(CLAIM, labelled) == ([], set())
