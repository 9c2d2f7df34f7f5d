"""A value of the wrong type is refused by name; nothing that is accepted breaks a reader."""

import json
from typing import Any

import msgspec
import pytest
from bitts.kube import kinds
from devcluster import errors, shapes, tables
from devcluster.api import Api
from devcluster.loops import views
from devcluster.resources import Resource
from hypothesis import given, settings
from hypothesis import strategies as st
from support import specimens

WRONG = [
    (
        "persistentvolumeclaims",
        ("metadata", "annotations", "a"),
        5,
        "cannot unmarshal number into Go struct field ObjectMeta.metadata.annotations[a] of type"
        " string",
    ),
    (
        "persistentvolumeclaims",
        ("spec", "accessModes"),
        "ReadWriteOnce",
        "cannot unmarshal string into Go struct field PersistentVolumeClaimSpec.spec.accessModes of"
        " type []string",
    ),
    (
        "persistentvolumeclaims",
        ("spec", "resources", "requests", "storage"),
        "big",
        "spec.resources.requests[storage]: must be a quantity such as 1Gi",
    ),
    ("persistentvolumeclaims", ("metadata",), [], "array into Go struct field"),
    ("persistentvolumes", ("spec", "csi"), "x", "of type CSIPersistentVolumeSource"),
    (
        "pods",
        ("spec", "containers", 0, "env", 0, "value"),
        8080,
        "EnvVar.spec.containers[0].env[0]",
    ),
    ("pods", ("spec", "containers", 0, "command"), "sh", "of type []string"),
    ("leases.coordination.k8s.io", ("spec", "renewTime"), "today", 'parsing time "today"'),
    ("leases.coordination.k8s.io", ("spec", "leaseTransitions"), 1.5, "number 1.5 into Go struct"),
    ("storageclasses.storage.k8s.io", ("allowVolumeExpansion",), "yes", "of type bool"),
    ("configmaps", ("data", "a"), {"b": "c"}, "object into Go struct field ConfigMap.data[a]"),
]


def resource_of(api: Api, qualified: str) -> Resource:
    plural, _, group = qualified.partition(".")
    return api.resource(plural, group)


@pytest.fixture
def api() -> Api:
    made = Api()
    made.create(made.resource("namespaces"), {"metadata": {"name": "default"}})
    return made


@pytest.mark.parametrize(("qualified", "path", "value", "words"), WRONG)
def test_a_wrong_type_is_refused_with_the_field_s_name(
    api: Api, qualified: str, path: tuple[Any, ...], value: Any, words: str
) -> None:
    resource, specimen = resource_of(api, qualified), specimens.SPECIMENS[qualified]
    namespace = "default" if resource.namespaced else ""
    wrong = specimens.replaced(specimen, path, value)
    with pytest.raises(errors.ApiError) as caught:
        api.create(resource, wrong, namespace)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert words in caught.value.message
    api.create(resource, specimen, namespace)
    with pytest.raises(errors.ApiError, match=r"400 BadRequest|409 Conflict|422 Invalid"):
        api.patch(resource, specimen["metadata"]["name"], wrong, namespace)


def test_null_is_absent_and_unknown_fields_are_dropped_and_named(api: Api) -> None:
    claims = api.resource("persistentvolumeclaims")
    specimen = specimens.SPECIMENS["persistentvolumeclaims"]
    obj = specimens.replaced(specimen, ("metadata", "labels"), None)
    obj = specimens.replaced(obj, ("spec", "selector"), {"matchLabels": {"a": None}, "extra": 1})
    obj["spec"]["storageClasName"] = "typo"
    obj["metadata"]["managedFields"] = [{"manager": "kept"}]
    assert shapes.conform(claims, obj) == ["spec.selector.extra", "spec.storageClasName"]
    assert "labels" not in obj["metadata"]
    assert obj["metadata"]["managedFields"] == [{"manager": "kept"}]
    assert obj["spec"]["selector"] == {"matchLabels": {"a": ""}}
    assert "storageClasName" not in obj["spec"]


def test_an_open_kind_keeps_what_the_tables_do_not_have(api: Api) -> None:
    pod = json.loads(json.dumps(specimens.SPECIMENS["pods"]))
    pod["spec"]["containers"][0]["livenessProbe"] = {"httpGet": {"port": "http"}}
    assert shapes.conform(api.resource("pods"), pod) == []
    assert pod["spec"]["containers"][0]["livenessProbe"] == {"httpGet": {"port": "http"}}


def test_who_wants_it_strict_is_told_of_unknown_fields(api: Api) -> None:
    claims = api.resource("persistentvolumeclaims")
    typo = {**specimens.SPECIMENS["persistentvolumeclaims"], "sepc": {}}
    words = 'strict decoding error: unknown field "sepc"'
    with pytest.raises(errors.ApiError, match=words) as caught:
        api.insert(claims, typo, "default", manager="m", strict=True)
    assert caught.value.code == 400


@pytest.mark.parametrize("qualified", specimens.SPECIMENS)
def test_every_specimen_is_known_field_by_field(api: Api, qualified: str) -> None:
    specimen = json.loads(json.dumps(specimens.SPECIMENS[qualified]))
    assert shapes.conform(resource_of(api, qualified), specimen) == []
    assert specimen == specimens.SPECIMENS[qualified]


PLACES = [
    (qualified, path)
    for qualified, specimen in specimens.SPECIMENS.items()
    for path in specimens.paths(specimen)
    if path
]
ANYTHING: list[Any] = [
    *(None, True, 0, -1, 10**30, 1.5, "", "x", "\x00"),
    *([], [None], [{}], ["a"], {}, {"a": 1}, {"a": None}, {"": ""}),
]
OURS = {
    f"{kind.plural}.{kind.group}".rstrip("."): kind.type
    for kind in vars(kinds).values()
    if isinstance(kind, kinds.Kind)
}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(ANYTHING))
def test_whatever_is_accepted_can_be_shown_and_decoded(
    place: tuple[str, tuple[Any, ...]], value: Any
) -> None:
    api = Api()
    views.Views(api)  # what the controllers index of every object
    api.create(api.resource("namespaces"), {"metadata": {"name": "default"}})
    qualified, path = place
    resource = resource_of(api, qualified)
    obj = specimens.replaced(specimens.SPECIMENS[qualified], path, value)
    namespace = "default" if resource.namespaced else ""
    try:
        made = api.create(resource, obj, namespace)
    except errors.ApiError as refused:
        if refused.code not in {400, 404, 422}:
            raise
        return
    assert tables.table(resource, [made], {}, "Metadata")
    if ours := OURS.get(qualified):
        msgspec.convert(made, ours)
    for custom in [row for row in api.registry if row.custom]:
        boat = api.create(custom, {"metadata": {"name": "anna"}, "spec": {}}, "default")
        assert tables.table(custom, [boat], {}, "Metadata")
    api.delete(resource, made["metadata"]["name"], namespace)
