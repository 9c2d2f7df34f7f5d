"""What is read off single objects."""

from typing import Any

import pytest
from devcluster.loops import facts

Obj = dict[str, Any]


def obj(spec: Obj | None = None, **meta: Any) -> Obj:
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **meta}, "spec": spec or {}}


def test_claims_are_found_behind_every_kind_of_volume_that_has_one() -> None:
    volumes: list[Obj] = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "map", "configMap": {"name": "m"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    assert facts.claim_keys(obj({"volumes": volumes})) == ["ns/p-own", "ns/data"]
    assert facts.claim_keys(obj({"volumes": None})) == []


@pytest.mark.parametrize("key", ["ns/p", "p"])
def test_a_key_names_one_object_and_its_namespace(key: str) -> None:
    namespace, name = facts.split(key)
    assert facts.key(obj(name=name, namespace=namespace)) == key


def test_the_beta_annotation_wins_over_the_class_in_the_field() -> None:
    assert facts.class_name(obj({"storageClassName": "fast"})) == "fast"
    assert facts.class_name(obj({"storageClassName": None})) == ""
    beta = {"volume.beta.kubernetes.io/storage-class": ""}
    assert facts.class_name(obj({"storageClassName": "fast"}, annotations=beta)) == ""


@pytest.mark.parametrize(
    ("phase", "ended"), [(None, False), ("Running", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_pod_has_ended_when_its_phase_says_so(phase: str | None, ended: bool) -> None:
    assert facts.is_terminated({**obj(), "status": {"phase": phase}}) is ended


def test_what_is_not_set_is_empty() -> None:
    bare = obj(finalizers=None, annotations=None, ownerReferences=None)
    assert facts.finalizers(bare) == []
    assert facts.annotation(bare, "a") is None
    assert facts.node_name(bare) == facts.phase(bare) == ""
    assert facts.claim_ref_key(bare) is None
    assert facts.controller_owner(bare) is None
    assert not facts.is_deleting(bare)


def test_what_is_set_is_found() -> None:
    owners = [{"uid": "a"}, {"uid": "b", "controller": True}]
    told = obj({"nodeName": "n1", "claimRef": {"namespace": "ns", "name": "c"}})
    told["metadata"] |= {"ownerReferences": owners, "finalizers": ["f"], "deletionTimestamp": "t"}
    assert facts.controller_owner(told) == "b"
    assert facts.claim_ref_key(told) == "ns/c"
    assert (facts.uid(told), facts.node_name(told), facts.finalizers(told)) == ("u", "n1", ["f"])
    assert facts.is_deleting(told)
