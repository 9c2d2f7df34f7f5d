"""The manifest, the page and upstream's own rules say the same about what we may do."""

import pathlib
from typing import Any

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
MANIFEST = ROOT / "services" / "provisioner" / "deploy" / "rbac.yaml"
PAGE = ROOT / "docs" / "provisioner.md"
Grant = tuple[str, str]
"""A resource and a verb."""

UPSTREAM = {  # external-provisioner v6.4, deploy/kubernetes/rbac.yaml, of what we use
    "persistentvolumes": "get list watch create patch delete",
    "persistentvolumeclaims": "get list watch update",
    "storageclasses": "get list watch",
    "events": "list watch create update patch",
    "csinodes": "get list watch",
    "nodes": "get list watch",
    "volumeattachments": "get list watch",
    "secrets": "get list",  # there as a comment: for those who need it
    "leases": "get watch list delete update create",
    "csistoragecapacities": "get list watch create update patch delete",
    "pods": "get",
    "replicasets": "get",
}


def grants(rules: dict[str, str]) -> set[Grant]:
    return {(name, verb) for name, verbs in rules.items() for verb in verbs.split()}


@pytest.fixture
def granted() -> dict[str, set[Grant]]:
    """What the manifest grants, by kind of role."""
    found: dict[str, set[Grant]] = {}
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text()))
    for one in objects:
        for rule in one.get("rules", ()):
            pairs = {(name, verb) for name in rule["resources"] for verb in rule["verbs"]}
            found.setdefault(one["kind"], set()).update(pairs)
    return found


def test_nothing_is_asked_for_that_upstream_has_not_but_one_read(
    granted: dict[str, set[Grant]],
) -> None:
    everything = granted["ClusterRole"] | granted["Role"]
    assert everything - grants(UPSTREAM) == {("volumeattributesclasses", "get")}


def test_the_page_lists_what_the_manifest_grants(granted: dict[str, set[Grant]]) -> None:
    section = PAGE.read_text().split("## Permissions")[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("|")][2:]
    told: dict[str, set[Grant]] = {"ClusterRole": set(), "Role": set()}
    for names, verbs in rows:
        kind = "Role" if "(own namespace)" in names else "ClusterRole"
        for name in names.replace("(own namespace)", "").split(","):
            told[kind] |= {(name.strip(), verb) for verb in verbs.split()}
    assert told == granted
