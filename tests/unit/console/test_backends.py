"""A scenario moved to one backend: classes, claims, and what a backend cannot keep."""

from typing import Any

import pytest
from bitts_console import backends, demo, scenario
from bitts_console.scenario import Omission


def classes(plan: scenario.Scenario) -> dict[str, Any]:
    return {one.name: one.body["parameters"] for one in plan.of_kind("StorageClass")}


def kept(backend: str) -> tuple[scenario.Scenario, list[Omission]]:
    return backends.kept_by(backend, demo.read_manifests(None))


def test_images_keep_everything_and_only_classes_that_change_get_a_name_of_their_own() -> None:
    plan, omissions = kept("image")
    assert omissions == []
    assert len(plan.claims) == 5
    assert classes(plan) == {
        "bitts-directory-as-image": {"backend": "image"},
        "bitts-ext4": {"backend": "image", scenario.FILESYSTEM_PARAMETER: "ext4"},
        "bitts-xfs": {"backend": "image", scenario.FILESYSTEM_PARAMETER: "xfs"},
    }


@pytest.mark.parametrize("backend", ["directory", "btrfs"])
def test_folders_take_no_file_system_and_no_raw_volume(backend: str) -> None:
    plan, omissions = kept(backend)
    assert all(parameters == {"backend": backend} for parameters in classes(plan).values())
    assert omissions == [
        Omission(("claim raw",), f"backend {backend} has no raw volumes"),
        Omission(("pod raw-writer", "pod raw-reader"), "claim raw is left out"),
    ]
    assert (len(plan.claims), len(plan.pods)) == (4, 7)


@pytest.mark.parametrize("backend", backends.EVERY)
def test_every_claim_names_a_class_of_the_scenario(backend: str) -> None:
    plan, _ = kept(backend)
    chosen = {claim.body["spec"]["storageClassName"] for claim in plan.claims}
    assert chosen <= set(classes(plan))


def test_claims_of_other_classes_stay_as_they_are() -> None:
    text = "{kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: mine}}"
    plan = scenario.parse({"x.yaml": text})
    assert backends.kept_by("btrfs", plan) == (plan, [])


def test_what_does_not_work_is_told_with_its_reason() -> None:
    found = backends.working(lambda name: "no loop devices" if name == "image" else "")
    assert found == (["directory", "btrfs"], [Omission(("backend image",), "no loop devices")])
