"""The semantics that every kind shares: identity, conflicts, finalizers, status, admission."""

from typing import Any

import pytest
from devcluster import errors, metadata
from devcluster.api import Api
from devcluster.metadata import DeleteOptions

CLAIM: dict[str, Any] = {
    "metadata": {"name": "c"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
}


@pytest.fixture
def api() -> Api:
    made = Api()
    made.create(made.resource("namespaces"), {"metadata": {"name": "default"}})
    return made


def config(name: str = "m", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "data": {"k": "v"}}


def make_class(api: Api, name: str, *, default: bool) -> None:
    mark = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    about = {"name": name, "annotations": mark}
    api.create(
        api.resource("storageclasses", "storage.k8s.io"), {"metadata": about, "provisioner": "p"}
    )


def test_a_new_object_gets_its_identity_from_the_server(api: Api) -> None:
    given = config(uid="mine", creationTimestamp="1999-01-01T00:00:00Z", generation=7)
    found = api.create(api.resource("configmaps"), given, "default")
    metadata = found["metadata"]
    assert (found["kind"], found["apiVersion"]) == ("ConfigMap", "v1")
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] > "2000"
    assert "generation" not in metadata
    assert given["metadata"]["uid"] == "mine", "the caller's object is left alone"


def test_a_generated_name_starts_as_asked(api: Api) -> None:
    maps = api.resource("configmaps")
    names = {
        api.create(maps, {"metadata": {"generateName": "run-"}}, "default")["metadata"]["name"]
        for _ in range(3)
    }
    assert len(names) == 3
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


def test_a_generated_name_that_is_taken_is_thrown_again(api: Api) -> None:
    asked: list[str] = []

    def is_taken(name: str) -> bool:
        asked.append(name)
        return len(asked) < 3

    maps = api.resource("configmaps")
    obj: dict[str, Any] = {"metadata": {"generateName": "run-"}}
    assert metadata.begin(maps, obj, "default", is_taken)["metadata"]["name"] == asked[2]
    obj = {"metadata": {"generateName": "run-"}}
    metadata.begin(maps, obj, "default", lambda name: True)  # comes to an end


def test_a_name_is_taken_once(api: Api) -> None:
    maps = api.resource("configmaps")
    api.create(maps, config(), "default")
    with pytest.raises(errors.ApiError, match='configmaps "m" already exists') as caught:
        api.create(maps, config(), "default")
    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")


def test_an_old_resource_version_conflicts(api: Api) -> None:
    maps = api.resource("configmaps")
    first = api.create(maps, config(), "default")
    second = api.patch(maps, "m", {"data": {"k": "w"}}, "default")
    version = first["metadata"]["resourceVersion"]
    with pytest.raises(errors.ApiError, match="please apply your changes") as caught:
        api.patch(maps, "m", {"data": {"k": "x"}}, "default", resource_version=version)
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert api.get(maps, "m", "default") is second


def test_a_change_that_changes_nothing_is_no_write(api: Api) -> None:
    maps = api.resource("configmaps")
    seen: list[str] = []
    api.subscribe(maps, lambda kind, _old, _new: seen.append(kind))
    first = api.create(maps, config(), "default")
    assert api.patch(maps, "m", {"data": {"k": "v"}}, "default") is first
    assert seen == ["ADDED"]


def test_finalizers_hold_a_deleted_object_and_none_may_join(api: Api) -> None:
    maps = api.resource("configmaps")
    seen: list[tuple[str, bool]] = []
    api.subscribe(maps, lambda kind, old, _new: seen.append((kind, old is None)))
    api.create(maps, config(finalizers=["a.io/x"]), "default")
    marked = api.delete(maps, "m", "default")
    assert marked["metadata"]["deletionTimestamp"]
    assert api.delete(maps, "m", "default") is marked, "deleting again changes nothing"
    with pytest.raises(errors.ApiError, match="no new finalizers can be added"):
        api.patch(maps, "m", {"metadata": {"finalizers": ["a.io/x", "b.io/y"]}}, "default")
    told: list[dict[str, Any]] = []
    api.subscribe(maps, lambda event, old, new: told.append({"event": event, **new["metadata"]}))
    left = api.patch(maps, "m", {"metadata": {"finalizers": []}}, "default")
    (gone,) = told
    assert (gone["event"], gone["finalizers"]) == ("DELETED", ["a.io/x"]), "as it was stored last"
    assert "finalizers" not in left["metadata"]
    assert left["metadata"]["resourceVersion"] == gone["resourceVersion"]
    assert api.get(maps, "m", "default") is None
    assert seen == [("ADDED", True), ("MODIFIED", False), ("DELETED", False)]


def test_a_deletion_can_demand_the_object_it_means(api: Api) -> None:
    maps = api.resource("configmaps")
    api.create(maps, config(), "default")
    with pytest.raises(errors.ApiError, match="Precondition failed: UID") as caught:
        api.delete(maps, "m", "default", uid="another")
    assert caught.value.code == 409
    with pytest.raises(errors.ApiError, match="Precondition failed: ResourceVersion"):
        api.remove(maps, ("default", "m"), DeleteOptions(revision="1"))


@pytest.mark.parametrize(
    ("propagation", "finalizer"), [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")]
)
def test_propagation_is_left_for_the_garbage_loop(
    api: Api, propagation: str, finalizer: str
) -> None:
    maps = api.resource("configmaps")
    api.create(maps, config(), "default")
    marked = api.delete(maps, "m", "default", propagation=propagation)
    assert marked["metadata"]["finalizers"] == [finalizer]
    api.delete(maps, "m", "default", propagation="Background")
    assert api.get(maps, "m", "default") is None


def test_status_and_the_rest_do_not_touch_each_other(api: Api) -> None:
    volumes = api.resource("persistentvolumes")
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
    }
    made = api.create(
        volumes, {"metadata": {"name": "v"}, "spec": spec, "status": {"phase": "Odd"}}
    )
    assert made["status"]["phase"] == "Pending"
    both: dict[str, Any] = {"spec": {"mountOptions": ["ro"]}, "status": {"phase": "Bound"}}
    main = api.patch(volumes, "v", both)
    assert (main["spec"]["mountOptions"], main["status"]["phase"]) == (["ro"], "Pending")
    both["spec"]["mountOptions"] = []
    status = api.patch(volumes, "v", both, subresource="status")
    assert (status["spec"]["mountOptions"], status["status"]["phase"]) == (["ro"], "Bound")


def test_generation_counts_changes_of_the_spec_only(api: Api) -> None:
    pods = api.resource("pods")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    generations = [api.create(pods, pod, "default")["metadata"]["generation"]]
    for patch, part in (
        ({"metadata": {"labels": {"a": "b"}}}, ""),
        ({"status": {"phase": "Running"}}, "status"),
        ({"spec": {"nodeName": "n"}}, ""),
    ):
        found = api.patch(pods, "p", patch, "default", subresource=part)
        generations.append(found["metadata"]["generation"])
    assert generations == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("patch", "grace", "is_gone"),
    [
        pytest.param({}, None, True, id="never placed"),
        pytest.param({"spec": {"nodeName": "n"}}, None, False, id="on a node"),
        pytest.param({"spec": {"nodeName": "n"}}, 0, True, id="without grace"),
        pytest.param(
            {"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}}, None, True, id="done"
        ),
    ],
)
def test_a_pod_on_a_node_ends_gracefully(
    api: Api, patch: Any, grace: int | None, is_gone: bool
) -> None:
    pods = api.resource("pods")
    api.create(
        pods,
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "default",
    )
    api.patch(pods, "p", {"spec": patch.get("spec", {})}, "default")
    api.patch(pods, "p", {"status": patch.get("status", {})}, "default", subresource="status")
    api.delete(pods, "p", "default", grace=grace)
    left = api.get(pods, "p", "default")
    assert (left is None) is is_gone
    if left is not None:
        assert left["metadata"]["deletionGracePeriodSeconds"] == 30
        api.delete(pods, "p", "default", grace=0)
        assert api.get(pods, "p", "default") is None


def test_namespaces_gate_creation_and_end_by_their_finalizer(api: Api) -> None:
    namespaces, maps = api.resource("namespaces"), api.resource("configmaps")
    with pytest.raises(errors.ApiError, match='namespaces "shop" not found'):
        api.create(maps, config(), "shop")
    api.create(namespaces, {"metadata": {"name": "shop"}})
    ending = api.delete(namespaces, "shop")
    assert ending["status"]["phase"] == "Terminating"
    with pytest.raises(errors.ApiError, match="is being terminated") as caught:
        api.create(maps, config(), "shop")
    assert caught.value.code == 403
    api.patch(namespaces, "shop", {"spec": {"finalizers": []}}, subresource="finalize")
    assert api.get(namespaces, "shop") is None


def test_the_default_namespace_stays(api: Api) -> None:
    with pytest.raises(errors.ApiError, match="may not be deleted"):
        api.delete(api.resource("namespaces"), "default")


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        pytest.param({}, {}, "newest", id="default"),
        pytest.param({"storageClassName": ""}, {}, "", id="explicitly none"),
        pytest.param({"storageClassName": "x"}, {}, "x", id="explicit"),
        pytest.param({}, {"volume.beta.kubernetes.io/storage-class": "y"}, None, id="annotation"),
    ],
)
def test_a_claim_gets_the_default_class(
    api: Api, spec: dict[str, str], annotations: dict[str, str], expected: str | None
) -> None:
    make_class(api, "newest", default=True)
    make_class(api, "other", default=False)
    about = {"name": "c", "annotations": annotations}
    claim = {"metadata": about, "spec": {**CLAIM["spec"], **spec}}
    found = api.create(api.resource("persistentvolumeclaims"), claim, "default")
    assert found["spec"].get("storageClassName") == expected


def test_claims_and_volumes_in_use_are_protected_from_the_start(api: Api) -> None:
    claim = api.create(api.resource("persistentvolumeclaims"), CLAIM, "default")
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi", "quantities are canonical"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
    }
    volume = api.create(
        api.resource("persistentvolumes"), {"metadata": {"name": "v"}, "spec": spec}
    )
    assert volume["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]


def test_a_data_source_is_shown_in_both_fields(api: Api) -> None:
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    claim = {**CLAIM, "spec": {**CLAIM["spec"], "dataSource": source}}
    found = api.create(api.resource("persistentvolumeclaims"), claim, "default")
    assert found["spec"]["dataSourceRef"] == source


def test_secrets_take_clear_text_and_keep_it_encoded(api: Api) -> None:
    secret = {"metadata": {"name": "s"}, "stringData": {"k": "v"}}
    found = api.create(api.resource("secrets"), secret, "default")
    assert (found["data"], found["type"], "stringData" in found) == ({"k": "dg=="}, "Opaque", False)


def test_only_subscribers_that_still_listen_are_called(api: Api) -> None:
    maps = api.resource("configmaps")
    seen: list[str] = []
    stop = api.subscribe(
        maps, lambda kind, _old, new: seen.append(f"{kind} {new['metadata']['name']}")
    )
    api.create(maps, config("a"), "default")
    stop()
    api.create(maps, config("b"), "default")
    assert seen == ["ADDED a"]


def test_lists_are_by_namespace_and_label(api: Api) -> None:
    maps = api.resource("configmaps")
    api.create(api.resource("namespaces"), {"metadata": {"name": "shop"}})
    api.create(maps, config("a", labels={"x": "1"}), "default")
    api.create(maps, config("b"), "shop")
    names = [
        [o["metadata"]["name"] for o in api.list(maps, *query)]
        for query in ((), ("shop",), (None, "x=1"))
    ]
    assert names == [["a", "b"], ["b"], ["a"]]


def test_who_wrote_what_is_remembered(api: Api) -> None:
    maps = api.resource("configmaps")
    made = api.create(maps, config(), "default", manager="somebody")
    changed = api.patch(maps, "m", {"data": {"k": "w"}}, "default", manager="another")
    api.patch(maps, "m", {"data": {"k": "w"}}, "default", manager="a third, in vain")
    versions = [int(one["metadata"]["resourceVersion"]) for one in (made, changed)]
    assert list(api.writes)[-2:] == [(versions[0], "somebody", ""), (versions[1], "another", "")]
