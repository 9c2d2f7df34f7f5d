"""Which manifests are usable, and what is left out on which machine."""

import pathlib
from typing import Any

import pytest
from bitts_console import demo, scenario
from bitts_console.scenario import Abilities

ALL = Abilities(mounts=True, filesystems=frozenset({"ext4", "xfs"}))
NOTHING = Abilities(mounts=False, filesystems=frozenset(), hindrance="run it as root")


def examples() -> scenario.Scenario:
    return demo.read_manifests(None)


def test_a_backend_that_cannot_be_offered_says_what_is_in_its_way() -> None:
    assert ALL.hindrance_of("image") == ""
    assert "(package btrfs-progs)" in ALL.hindrance_of("btrfs")
    assert NOTHING.hindrance_of("btrfs") == "the btrfs backend needs a btrfs: run it as root"
    assert NOTHING.hindrance_of("directory") == ""


def test_with_all_abilities_nothing_is_left_out() -> None:
    restricted, omissions = scenario.restrict(examples(), ALL)
    assert restricted == examples()
    assert omissions == []


def test_without_root_the_immediate_directory_claims_remain() -> None:
    restricted, omissions = scenario.restrict(examples(), NOTHING)
    assert [claim.name for claim in restricted.claims] == ["checkpoint", "exclusive"]
    assert restricted.pods == []
    assert all("run it as root" in omission.reason for omission in omissions)
    left_out = {what for omission in omissions for what in omission.what}
    kept = {f"claim {claim.name}" for claim in restricted.claims}
    every = [*(f"claim {c.name}" for c in examples().claims)]
    every += [f"pod {pod.name}" for pod in examples().pods]
    assert left_out | kept == set(every)


def test_a_missing_mkfs_leaves_out_its_claims_and_their_pods() -> None:
    able = Abilities(mounts=True, filesystems=frozenset({"ext4"}))
    restricted, omissions = scenario.restrict(examples(), able)
    assert "dataset" not in [claim.name for claim in restricted.claims]
    assert [omission.reason for omission in omissions] == [
        "mkfs.xfs is missing: install the packages of debian-packages.txt",
        "claim dataset is left out",
    ]
    assert omissions[1].what == ("pod dataset-writer", "pod dataset-reader")


def test_a_late_class_needs_pods_even_with_folders() -> None:
    texts = {
        "a.yaml": """
kind: StorageClass
metadata: {name: late}
volumeBindingMode: WaitForFirstConsumer
---
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {storageClassName: late}
"""
    }
    _, omissions = scenario.restrict(scenario.parse(texts), NOTHING)
    assert omissions == [
        scenario.Omission(
            ("claim c",),
            "a class that waits for the first consumer binds only for pods: run it as root",
        )
    ]


def test_classes_come_before_claims_and_claims_before_pods() -> None:
    kinds = [manifest.kind for manifest in examples().manifests]
    assert kinds == sorted(kinds, key=scenario.ORDER.index)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "x.yaml: not valid YAML", id="yaml"),
        pytest.param("- 1", "x.yaml, document 1: expected an object", id="list"),
        pytest.param("kind: Job", "x.yaml, document 1: kind 'Job'", id="kind"),
        pytest.param("kind: Pod", "metadata.name is missing", id="no-metadata"),
        pytest.param("{kind: Pod, metadata: {}}", "metadata.name is missing", id="no-name"),
        pytest.param("---\n", "there are no manifests", id="empty"),
    ],
)
def test_wrong_manifests_are_named(text: str, message: str) -> None:
    with pytest.raises(scenario.ManifestError, match=message.replace("(", r"\(")):
        scenario.parse({"x.yaml": text})


def test_a_folder_without_manifests_says_what_to_give(tmp_path: pathlib.Path) -> None:
    with pytest.raises(scenario.ManifestError, match="--manifests"):
        demo.read_manifests(tmp_path / "none")


def every_pod() -> list[Any]:
    return [pytest.param(pod, id=pod.name) for pod in examples().pods]


@pytest.mark.parametrize("pod", every_pod())
def test_every_example_pod_says_which_data_and_uses_a_claim_of_the_examples(
    pod: scenario.Manifest,
) -> None:
    assert scenario.data_id(pod)
    names = {claim.name for claim in examples().claims}
    assert set(scenario.claims_of(pod)) <= names
    assert scenario.claims_of(pod)


def test_each_data_but_an_exclusive_one_has_a_writer_and_a_reader() -> None:
    modes = {c.name: c.body["spec"]["accessModes"] for c in examples().claims}
    users: dict[str, int] = {}
    for pod in examples().pods:
        users[scenario.data_id(pod)] = users.get(scenario.data_id(pod), 0) + 1
    assert users == {name: 1 if "ReadWriteOncePod" in mode else 2 for name, mode in modes.items()}


def test_a_scenario_moves_into_another_namespace_as_a_whole() -> None:
    moved = scenario.within(examples(), "elsewhere")
    assert {m.namespace for m in moved.claims + moved.pods} == {"elsewhere"}
    assert {m.body["metadata"]["namespace"] for m in moved.claims + moved.pods} == {"elsewhere"}
    assert [m.name for m in moved.of_kind("Namespace")] == ["elsewhere"]
    assert moved.of_kind("StorageClass") == examples().of_kind("StorageClass")


def test_a_namespace_is_made_where_the_manifests_have_none() -> None:
    claim = "{kind: PersistentVolumeClaim, metadata: {name: c}}"
    moved = scenario.within(scenario.parse({"x.yaml": claim}), "elsewhere")
    assert [(m.kind, m.name) for m in moved.manifests] == [
        ("Namespace", "elsewhere"),
        ("PersistentVolumeClaim", "c"),
    ]


def test_manifests_in_several_namespaces_are_refused() -> None:
    text = "{kind: Pod, metadata: {name: a}}\n---\n{kind: Pod, metadata: {name: b, namespace: n}}"
    with pytest.raises(scenario.ManifestError, match="one namespace"):
        scenario.within(scenario.parse({"x.yaml": text}), "elsewhere")
