"""JSON patch, merge patch and strategic merge patch as tables, and their laws."""

import copy
from typing import Any

import pytest
from devcluster import errors, patching
from hypothesis import given, settings
from hypothesis import strategies as st

names = st.text(alphabet="ab/~c", min_size=1, max_size=3)
scalars = st.booleans() | st.integers(-3, 3) | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(names, values, max_size=4)


def difference(old: Any, new: Any) -> Any:
    """The merge patch that leads from one document (without nulls) to another."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old or not patching.same(old[name], value):
            patch[name] = difference(old.get(name), value)
    return patch


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="null removes"),
        pytest.param({"a": ["b"]}, {"a": ["c", "d"]}, {"a": ["c", "d"]}, id="lists are replaced"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="deep"),
        pytest.param(["a"], {"b": 1}, {"b": 1}, id="object over list"),
        pytest.param({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="null in a new object"),
    ],
)
def test_merge_patch_follows_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert patching.merge(target, patch) == result


@given(documents, documents)
@settings(max_examples=100)
def test_a_merge_patch_leads_from_any_document_to_any_other(old: Any, new: Any) -> None:
    before = copy.deepcopy(old)
    patch = difference(old, new)
    merged = patching.merge(old, patch)
    assert patching.same(merged, new)
    assert patching.same(patching.merge(merged, patch), new)
    assert old == before


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        pytest.param({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}, id="append"),
        pytest.param({"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1, 2]}, id="insert"),
        pytest.param({"op": "add", "path": "/b", "value": {}}, {"a": [1, 2], "b": {}}, id="add"),
        pytest.param({"op": "remove", "path": "/a/1"}, {"a": [1]}, id="remove"),
        pytest.param({"op": "replace", "path": "/a", "value": 0}, {"a": 0}, id="replace"),
        pytest.param({"op": "test", "path": "/a/0", "value": 1}, {"a": [1, 2]}, id="test"),
        pytest.param(
            {"op": "copy", "from": "/a/0", "path": "/b"}, {"a": [1, 2], "b": 1}, id="copy"
        ),
        pytest.param({"op": "move", "from": "/a", "path": "/b~1c"}, {"b/c": [1, 2]}, id="move"),
        pytest.param({"op": "replace", "path": "", "value": {"x": 1}}, {"x": 1}, id="root"),
    ],
)
def test_json_patch_operations(operation: dict[str, Any], result: Any) -> None:
    document = {"a": [1, 2]}
    assert patching.json_patch(document, [operation]) == result
    assert document == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        pytest.param([{"op": "test", "path": "/a", "value": 2}], 422, id="test fails"),
        pytest.param([{"op": "test", "path": "/a", "value": True}], 422, id="true is not 1"),
        pytest.param([{"op": "remove", "path": "/b"}], 422, id="nothing there"),
        pytest.param([{"op": "replace", "path": "/b", "value": 1}], 422, id="nothing to replace"),
        pytest.param([{"op": "add", "path": "/a/b", "value": 1}], 422, id="through a scalar"),
        pytest.param([{"op": "add", "path": "/l/01", "value": 1}], 422, id="index with a zero"),
        pytest.param([{"op": "add", "path": "/l/3", "value": 1}], 422, id="index beyond the end"),
        pytest.param([{"op": "move", "from": "/l", "path": "/l/0"}], 422, id="into itself"),
        pytest.param([{"op": "add", "path": "a", "value": 1}], 400, id="no pointer"),
        pytest.param([{"op": "add", "path": "/a"}], 400, id="no value"),
        pytest.param([{"op": "jump", "path": "/a"}], 422, id="unknown operation"),
        pytest.param({"op": "add"}, 400, id="no list"),
        pytest.param(["add"], 400, id="no operation"),
    ],
)
def test_json_patch_says_what_is_wrong(operations: Any, code: int) -> None:
    with pytest.raises(errors.ApiError) as caught:
        patching.json_patch({"a": 1, "l": [0]}, operations)
    assert caught.value.code == code


@given(documents, names, values)
@settings(max_examples=100)
def test_what_json_patch_adds_it_removes_again(document: Any, name: str, value: Any) -> None:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    document.pop(name, None)
    added = patching.json_patch(document, [{"op": "add", "path": pointer, "value": value}])
    assert patching.same(added, {**document, name: value})
    back = [{"op": "test", "path": pointer, "value": value}, {"op": "remove", "path": pointer}]
    assert patching.same(patching.json_patch(added, back), document)


CONTAINERS = [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param(
            {"containers": CONTAINERS},
            {"containers": [{"name": "b", "image": "3"}, {"name": "c"}]},
            {"containers": [CONTAINERS[0], {"name": "b", "image": "3"}, {"name": "c"}]},
            id="lists merge by key",
        ),
        pytest.param(
            {"containers": CONTAINERS},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [CONTAINERS[1]]},
            id="an item is deleted",
        ),
        pytest.param(
            {"containers": CONTAINERS},
            {"containers": [{"$patch": "replace"}, {"name": "z"}]},
            {"containers": [{"name": "z"}]},
            id="a list is replaced",
        ),
        pytest.param(
            {"containers": CONTAINERS},
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            {"containers": [CONTAINERS[1], CONTAINERS[0]]},
            id="the order is set",
        ),
        pytest.param(
            {"finalizers": ["a/x", "b/y"]},
            {"finalizers": ["b/y", "c/z"], "$deleteFromPrimitiveList/finalizers": ["a/x"]},
            {"finalizers": ["b/y", "c/z"]},
            id="lists of words merge as sets",
        ),
        pytest.param(
            {"accessModes": ["ReadWriteOnce"]},
            {"accessModes": ["ReadOnlyMany"]},
            {"accessModes": ["ReadOnlyMany"]},
            id="other lists are replaced",
        ),
        pytest.param(
            {"spec": {"csi": {"driver": "d"}, "volumeMode": "Block"}},
            {"spec": {"$retainKeys": ["csi"], "csi": {"driver": "e"}}},
            {"spec": {"csi": {"driver": "e"}}},
            id="only named keys are retained",
        ),
        pytest.param(
            {"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}, id="map"
        ),
        pytest.param({"a": {"b": 1}, "c": 1}, {"a": None}, {"c": 1}, id="null removes"),
        pytest.param(
            {"ports": [{"containerPort": 80, "protocol": "TCP"}]},
            {"ports": [{"containerPort": 80, "name": "web"}]},
            {"ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}]},
            id="ports",
        ),
    ],
)
def test_strategic_merge_patch(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert patching.strategic(target, patch) == result
    assert target == before
