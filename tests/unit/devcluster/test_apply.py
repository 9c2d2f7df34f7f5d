"""Server-side apply: ownership, conflicts, and what an apply takes away again."""

from typing import Any

import pytest
from devcluster import apply, errors, fields
from devcluster.api import Api
from hypothesis import given, settings
from hypothesis import strategies as st

NOW = "2026-01-01T00:00:00Z"
KEY = ("default", "settings")
WEB = {"name": "web", "image": "web:1"}
CRD_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "rules": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port"],
                    "items": {"type": "object", "properties": {"port": {"type": "integer"}}},
                },
                "zones": {"type": "array", "x-kubernetes-list-type": "set"},
                "hosts": {"type": "array"},
            },
        }
    },
}


@pytest.fixture
def api() -> Api:
    made = Api()
    made.create(made.resource("namespaces"), {"metadata": {"name": "default"}})
    return made


def settings_of(data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    about = {"name": "settings", **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


def put(
    api: Api, manager: str, data: dict[str, str], *, force: bool = False, **metadata: Any
) -> Any:
    request = apply.Applied("v1", manager, settings_of(data, **metadata), force=force)
    stored, _ = api.apply(api.resource("configmaps"), KEY, request)
    return stored.value


def owners(obj: Any) -> dict[str, set[str]]:
    return {
        f"{owner.manager} {owner.operation}": {fields.spell(path) for path in owner.paths}
        for owner in apply.owners_of(obj)
    }


def test_the_first_apply_creates_the_object_and_owns_its_fields(api: Api) -> None:
    found = put(api, "ann", {"a": "1"}, labels={"x": "y"})
    assert owners(found) == {"ann Apply": {".data.a", ".metadata.labels.x"}}


def test_applying_the_same_again_writes_nothing(api: Api) -> None:
    first = put(api, "ann", {"a": "1"})
    assert put(api, "ann", {"a": "1"}) is first


def test_what_is_applied_no_more_goes_away(api: Api) -> None:
    put(api, "ann", {"a": "1", "b": "2"}, labels={"x": "y"})
    found = put(api, "ann", {"a": "1"})
    assert found["data"] == {"a": "1"}
    assert "labels" not in found["metadata"]


def test_what_another_manager_shares_stays(api: Api) -> None:
    put(api, "ann", {"a": "1", "b": "2"})
    put(api, "ben", {"b": "2"})
    found = put(api, "ann", {"a": "1"})
    assert found["data"] == {"a": "1", "b": "2"}
    assert owners(found) == {"ann Apply": {".data.a"}, "ben Apply": {".data.b"}}


def test_another_value_is_a_conflict_that_names_field_and_manager(api: Api) -> None:
    put(api, "ann", {"a": "1", "b": "2"})
    with pytest.raises(errors.ApiError) as caught:
        put(api, "ben", {"a": "9"})
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert caught.value.message == ('Apply failed with 1 conflict: conflict with "ann": .data.a')
    assert caught.value.details is not None
    assert caught.value.details["causes"][0]["reason"] == "FieldManagerConflict"


def test_force_takes_the_field_over(api: Api) -> None:
    put(api, "ann", {"a": "1", "b": "2"})
    found = put(api, "ben", {"a": "9"}, force=True)
    assert found["data"] == {"a": "9", "b": "2"}
    assert owners(found) == {"ann Apply": {".data.b"}, "ben Apply": {".data.a"}}


def test_the_creator_owns_what_was_there_before_the_first_apply(api: Api) -> None:
    api.create(
        api.resource("configmaps"), settings_of({"a": "1"}, namespace="default"), manager="eve"
    )
    with pytest.raises(errors.ApiError, match='conflict with "eve" using v1 at'):
        put(api, "ann", {"a": "2"})
    assert owners(put(api, "ann", {"a": "1", "b": "2"}))["eve Update"] == {".data.a"}


def test_a_plain_write_takes_over_what_it_changes(api: Api) -> None:
    put(api, "ann", {"a": "1", "b": "2"})
    maps = api.resource("configmaps")
    found = api.patch(maps, "settings", {"data": {"a": "5", "b": None}}, "default", manager="eve")
    assert owners(found) == {"eve Update": {".data.a"}}
    with pytest.raises(errors.ApiError, match='conflict with "eve"'):
        put(api, "ann", {"a": "1"})


def test_status_is_owned_and_applied_apart(api: Api) -> None:
    nodes = api.resource("nodes")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    whole = {**node, "spec": {"unschedulable": True}, "status": {"phase": "x"}}
    main, _ = api.apply(nodes, ("", "n"), apply.Applied("v1", "ann", whole))
    assert owners(main.value) == {"ann Apply": {".spec.unschedulable"}}
    request = apply.Applied("v1", "kubelet", {**whole, "spec": {}}, subresource="status")
    found, is_new = api.apply(nodes, ("", "n"), request)
    assert not is_new
    assert found.value["status"] == {"phase": "x"}
    assert found.value["spec"] == {"unschedulable": True}
    assert owners(found.value)["kubelet Apply"] == {".status.phase"}


def test_managed_fields_cannot_be_applied(api: Api) -> None:
    with pytest.raises(errors.ApiError, match="managedFields must be nil"):
        put(api, "ann", {}, managedFields=[{"manager": "x"}])


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers)},
    }


def test_list_items_merge_by_key_and_leave_with_their_owner() -> None:
    live = apply.create(apply.Applied("v1", "ann", pod(WEB)), {}, NOW)
    log = {"name": "log", "image": "log:1"}
    live = apply.onto(live, apply.Applied("v1", "mesh", pod(log)), {}, NOW)
    assert live["spec"]["containers"] == [WEB, log]
    live = apply.onto(live, apply.Applied("v1", "mesh", pod({**log, "image": "log:2"})), {}, NOW)
    assert live["spec"]["containers"] == [WEB, {**log, "image": "log:2"}]
    live = apply.onto(live, apply.Applied("v1", "mesh", {**pod(), "spec": {}}), {}, NOW)
    assert live["spec"]["containers"] == [WEB]


def test_an_item_that_others_add_to_stays_when_its_first_owner_leaves() -> None:
    live = apply.create(apply.Applied("v1", "ann", pod(WEB)), {}, NOW)
    limited = {"name": "web", "tty": True}
    live = apply.onto(live, apply.Applied("v1", "ben", pod(limited)), {}, NOW)
    live = apply.onto(live, apply.Applied("v1", "ann", {**pod(), "spec": {}}), {}, NOW)
    assert live["spec"]["containers"] == [limited]


def custom(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "x.io/v1", "kind": "Rule", "metadata": {"name": "r"}, "spec": spec}


def test_custom_lists_merge_as_their_schema_says() -> None:
    first = custom(rules=[{"port": 1, "a": 1}], zones=["x"], hosts=["h"])
    live = apply.create(apply.Applied("x.io/v1", "ann", first), CRD_SCHEMA, NOW)
    second = custom(rules=[{"port": 2}], zones=["y"])
    live = apply.onto(live, apply.Applied("x.io/v1", "ben", second), CRD_SCHEMA, NOW)
    assert live["spec"]["rules"] == [{"port": 1, "a": 1}, {"port": 2}]
    assert live["spec"]["zones"] == ["x", "y"]
    with pytest.raises(errors.ApiError, match=r"\.spec\.hosts"):
        apply.onto(live, apply.Applied("x.io/v1", "ben", custom(hosts=["i"])), CRD_SCHEMA, NOW)


def test_conflicts_are_spelled_with_the_keys_of_list_items() -> None:
    live = apply.create(apply.Applied("v1", "ann", pod(WEB)), {}, NOW)
    with pytest.raises(errors.ApiError, match=r'\.spec\.containers\[name="web"\]\.image'):
        apply.onto(live, apply.Applied("v1", "ben", pod({**WEB, "image": "z"})), {}, NOW)


words = st.text(alphabet="abc", min_size=1, max_size=2)
data = st.dictionaries(words, words, max_size=4)


@given(data, data, data)
@settings(max_examples=100)
def test_managers_with_fields_of_their_own_never_disturb_each_other(
    first: dict[str, str], second: dict[str, str], other: dict[str, str]
) -> None:
    def request(manager: str, **parts: dict[str, str]) -> apply.Applied:
        given = {name: value for name, value in parts.items() if value}
        head = {name: part for name, part in settings_of({}).items() if name != "data"}
        return apply.Applied("v1", manager, {**head, **given})

    theirs = request("ben", binaryData=other)
    live = apply.create(request("ann", data=first), {}, NOW)
    live = apply.onto(live, theirs, {}, NOW)
    live = apply.onto(live, request("ann", data=second), {}, NOW)
    assert live.get("data", {}) == second
    assert live.get("binaryData", {}) == other
    again = apply.onto(live, theirs, {}, NOW)
    assert again == live


@given(
    st.recursive(words | st.integers(), lambda inner: st.dictionaries(words, inner), max_leaves=8)
)
@settings(max_examples=100)
def test_field_sets_survive_their_wire_form(value: Any) -> None:
    leaves = fields.of_object({"spec": value}, {})
    assert fields.from_tree(fields.to_tree(leaves)) == set(leaves)
