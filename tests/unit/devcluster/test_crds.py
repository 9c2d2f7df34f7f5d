"""Custom resources: served at once, checked and completed by their schema."""

from typing import Any

import pytest
from devcluster import errors, tables, views
from devcluster.api import Api

SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer"},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "note": {"type": "string", "nullable": True},
    },
}
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": SPEC,
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    },
}


def definition(**more: Any) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    version |= {"subresources": {"status": {}}}
    version["additionalPrinterColumns"] = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {
            "name": "Ready",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
        },
        {
            "name": "Old",
            "type": "string",
            "jsonPath": r".metadata.annotations.a\.io/b",
            "priority": 1,
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    older = {**version, "name": "v1beta1", "storage": False}
    names = {"plural": "things", "kind": "Thing", "shortNames": ["th"]}
    spec = {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [older, version]}
    return {"metadata": {"name": "things.x.io"}, "spec": {**spec, **more}}


@pytest.fixture
def api() -> Api:
    made = Api()
    made.create(made.resource("namespaces"), {"metadata": {"name": "default"}})
    made.create(made.resource("customresourcedefinitions", "apiextensions.k8s.io"), definition())
    return made


def thing(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "t"}, "spec": {"size": 1, **spec}}


def create(api: Api, **spec: Any) -> Any:
    return api.create(api.resource("things", "x.io"), thing(**spec), "default")


def test_a_definition_is_established_at_once(api: Api) -> None:
    found = api.get(
        api.resource("customresourcedefinitions", "apiextensions.k8s.io"), "things.x.io"
    )
    assert found is not None
    assert {c["type"]: c["status"] for c in found["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["spec"]["names"]["singular"] == "thing"


def test_objects_are_completed_and_pruned(api: Api) -> None:
    found = create(
        api, unknown=1, free={"any": [1]}, tags={"a": "b"}, parts=[{"name": "n", "x": 1}]
    )
    assert found["spec"] == {
        "size": 1,
        "mode": "slow",
        "free": {"any": [1]},
        "tags": {"a": "b"},
        "parts": [{"name": "n"}],
    }
    assert found["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"size": "1"}, 'spec.size.*"1".*must be of type integer'),
        ({"size": True}, "must be of type integer"),
        ({"mode": "medium"}, 'spec.mode: Unsupported value: "medium".*"fast", "slow"'),
        ({"tags": {"a": 1}}, "spec.tags.a.*must be of type string"),
        ({"parts": [{"name": 1}]}, r"spec.parts\[0\].name"),
        ({"parts": {}}, "spec.parts.*must be of type array"),
        ({"port": 1.5}, "must be of type integer or string"),
    ],
)
def test_the_schema_is_enforced(api: Api, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.ApiError, match=words) as caught:
        create(api, **spec)
    assert caught.value.code == 422


def test_required_fields_are_named(api: Api) -> None:
    with pytest.raises(errors.ApiError, match=r"spec\.size: Required value"):
        api.create(
            api.resource("things", "x.io"), {"metadata": {"name": "t"}, "spec": {}}, "default"
        )


def test_nullable_and_mixed_types_are_accepted(api: Api) -> None:
    assert create(api, note=None, port="http")["spec"]["note"] is None


def test_status_is_a_subresource_that_writes_no_metadata(api: Api) -> None:
    create(api)
    things = api.resource("things", "x.io")
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"ready": True}}
    found = api.patch(things, "t", patch, "default", subresource="status")
    assert (found["spec"]["size"], found["status"]) == (1, {"ready": True})
    assert "labels" not in found["metadata"]
    assert found["metadata"]["generation"] == 1


def test_every_served_version_shows_the_same_objects(api: Api) -> None:
    create(api)
    older = api.registry.find("x.io", "v1beta1", "things")
    stored = api.require(older, ("default", "t"))
    assert views.show(older, stored.value)["apiVersion"] == "x.io/v1beta1"
    assert stored.value["apiVersion"] == "x.io/v1"


def test_printer_columns_become_cells(api: Api) -> None:
    found = create(api)
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    shown = {**found, "status": {"conditions": conditions}}
    shown["metadata"] = {**found["metadata"], "annotations": {"a.io/b": "old"}}
    table = tables.table(api.resource("things", "x.io"), [shown], {}, "None")
    assert [c["name"] for c in table["columnDefinitions"]] == [
        "Name",
        "Size",
        "Ready",
        "Old",
        "Age",
    ]
    assert [c["priority"] for c in table["columnDefinitions"]] == [0, 0, 0, 1, 0]
    name, size, ready, old, age = table["rows"][0]["cells"]
    assert (name, size, ready, old) == ("t", 1, "True", "old")
    assert age.endswith("s")


def test_a_deleted_definition_takes_its_objects_along(api: Api) -> None:
    create(api)
    seen: list[str] = []
    api.subscribe(api.resource("things", "x.io"), lambda kind, _old, _new: seen.append(kind))
    crds = api.resource("customresourcedefinitions", "apiextensions.k8s.io")
    api.delete(crds, "things.x.io")
    assert seen == ["DELETED"]
    with pytest.raises(errors.ApiError, match="could not find"):
        api.resource("things", "x.io")
    api.create(crds, definition())
    assert api.list(api.resource("things", "x.io")) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group": "y.io"}, "metadata.name.*must be spec.names.plural"),
        ({"scope": "Global"}, "spec.scope"),
        ({"versions": []}, "exactly one version marked as storage"),
        ({"versions": [{"name": "v1", "storage": True}]}, "schemas are required"),
        ({"names": {}}, "spec.names.plural: Required"),
    ],
)
def test_wrong_definitions_are_refused(change: dict[str, Any], words: str) -> None:
    made = Api()
    crds = made.resource("customresourcedefinitions", "apiextensions.k8s.io")
    with pytest.raises(errors.ApiError, match=words):
        made.create(crds, definition(**change))
