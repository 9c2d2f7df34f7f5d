"""When in-use protection lets claims and volumes go."""

from typing import Any

import pytest
from devcluster.loops import names, protection
from devcluster.loops.actions import Patch
from support.manifests import NOW, claim, owner, pod, volume

Obj = dict[str, Any]
DELETED: Obj = {"deletionTimestamp": NOW, "finalizers": [names.CLAIM_FINALIZER]}
RELEASED = [Patch(names.CLAIMS, "ns/c", {"metadata": {"finalizers": None}})]
USER: Obj = {"claims": ("c",), "nodeName": "n1"}
GONE: Obj = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}


@pytest.mark.parametrize(
    ("it", "pods", "released"),
    [
        pytest.param(claim(**DELETED), [], True, id="nobody uses it"),
        pytest.param(claim(finalizers=[names.CLAIM_FINALIZER]), [], False, id="not deleted"),
        pytest.param(claim(deletionTimestamp=NOW, finalizers=["a/b"]), [], False, id="not ours"),
        pytest.param(claim(**DELETED), [pod(**USER)], False, id="in use"),
        pytest.param(claim(**DELETED), [pod(claims=("c",))], True, id="pod has no node"),
        pytest.param(claim(**DELETED), [pod(**USER, phase="Succeeded")], False, id="pod finished"),
        pytest.param(claim(**DELETED), [pod(**USER, **GONE)], True, id="pod force-deleted"),
        pytest.param(
            claim(**DELETED, ownerReferences=[owner(pod(), controller=True)]),
            [pod(nodeName="n1")],
            False,
            id="ephemeral volume of a pod",
        ),
    ],
)
def test_a_claim_goes_when_its_last_user_has_gone(it: Obj, pods: list[Obj], released: bool) -> None:
    assert protection.decide_claim(it, pods) == (RELEASED if released else [])


def test_other_finalizers_stay() -> None:
    it = claim(deletionTimestamp=NOW, finalizers=["a/b", names.CLAIM_FINALIZER])
    (patch,) = protection.decide_claim(it, [])
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"finalizers": ["a/b"]}}


@pytest.mark.parametrize(("phase", "released"), [("Bound", False), ("Released", True)])
def test_a_volume_goes_when_it_is_not_bound(phase: str, released: bool) -> None:
    it = volume(phase=phase, deletionTimestamp=NOW, finalizers=[names.VOLUME_FINALIZER])
    expected = [Patch(names.VOLUMES, "v", {"metadata": {"finalizers": None}})]
    assert protection.decide_volume(it) == (expected if released else [])


def test_a_finalizer_that_was_taken_off_comes_back() -> None:
    (patch,) = protection.decide_claim(claim(finalizers=["a/b"]), [])
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"finalizers": ["a/b", names.CLAIM_FINALIZER]}}
    expected = [Patch(names.VOLUMES, "v", {"metadata": {"finalizers": [names.VOLUME_FINALIZER]}})]
    assert protection.decide_volume(volume(phase="Available")) == expected
