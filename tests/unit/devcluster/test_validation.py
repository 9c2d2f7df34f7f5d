"""The rules of the kinds, as tables of what is refused and why."""

from typing import Any

import pytest
from devcluster import errors, patching
from devcluster.api import Api

STORAGE = "storage.k8s.io"
CLAIM: dict[str, Any] = {
    "metadata": {"name": "c"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    },
}
VOLUME: dict[str, Any] = {
    "metadata": {"name": "v"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "d.io", "volumeHandle": "h"},
    },
}
CLASS: dict[str, Any] = {"metadata": {"name": "fast"}, "provisioner": "d.io"}
ATTACHMENT: dict[str, Any] = {
    "metadata": {"name": "a"},
    "spec": {"attacher": "d.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
}
CSI_NODE: dict[str, Any] = {
    "metadata": {"name": "n"},
    "spec": {"drivers": [{"name": "d.io", "nodeID": "id", "topologyKeys": ["zone"]}]},
}
POD: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
MAP: dict[str, Any] = {"metadata": {"name": "m"}, "data": {"k": "v"}}
LEASE: dict[str, Any] = {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 15}}

PLACES = {
    "persistentvolumeclaims": ("", CLAIM),
    "persistentvolumes": ("", VOLUME),
    "storageclasses": (STORAGE, CLASS),
    "volumeattachments": (STORAGE, ATTACHMENT),
    "csinodes": (STORAGE, CSI_NODE),
    "csidrivers": (STORAGE, {"metadata": {"name": "d.io"}, "spec": {}}),
    "csistoragecapacities": (
        STORAGE,
        {"metadata": {"name": "k"}, "storageClassName": "fast", "capacity": "0"},
    ),
    "volumeattributesclasses": (
        STORAGE,
        {"metadata": {"name": "gold"}, "driverName": "D.io", "parameters": {"a": "b"}},
    ),
    "pods": ("", POD),
    "configmaps": ("", MAP),
    "secrets": ("", {**MAP, "data": {"k": "dg=="}}),
    "leases": ("coordination.k8s.io", LEASE),
}


@pytest.fixture
def api() -> Api:
    made = Api()
    made.create(made.resource("namespaces"), {"metadata": {"name": "default"}})
    return made


def create(api: Api, plural: str, change: Any = None) -> Any:
    group, valid = PLACES[plural]
    resource = api.resource(plural, group)
    namespace = "default" if resource.namespaced else ""
    return api.create(resource, patching.merge(valid, change or {}), namespace)


def change(api: Api, plural: str, patch: Any, subresource: str = "") -> Any:
    group, valid = PLACES[plural]
    resource = api.resource(plural, group)
    namespace = "default" if resource.namespaced else ""
    name = valid["metadata"]["name"]
    return api.patch(resource, name, patch, namespace, subresource=subresource)


OTHER = {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "y"}}


def owner(version: str, kind: str = "Pod") -> dict[str, str]:
    return {"apiVersion": version, "kind": kind, "name": "n", "uid": "u"}


def source(kind: str = "PersistentVolumeClaim", name: str = "x") -> dict[str, Any]:
    return {"spec": {"dataSourceRef": {"kind": kind, "name": name}}}


def keys(*names: str) -> dict[str, Any]:
    return {"spec": {"drivers": [{"name": "d.io", "nodeID": "x", "topologyKeys": list(names)}]}}


CREATIONS = [
    ("persistentvolumeclaims", {"metadata": {"name": "Upper"}}, "metadata.name: Invalid value"),
    ("persistentvolumeclaims", {"metadata": {"name": None}}, "name or generateName is required"),
    ("persistentvolumeclaims", {"metadata": {"labels": {"a": "b c"}}}, "metadata.labels"),
    ("persistentvolumeclaims", {"metadata": {"finalizers": ["x"]}}, r"metadata.finalizers\[0\]"),
    ("persistentvolumeclaims", {"spec": {"accessModes": []}}, "at least 1 access mode"),
    ("persistentvolumeclaims", {"spec": {"accessModes": ["RWX"]}}, 'Unsupported value: "RWX"'),
    (
        "persistentvolumeclaims",
        {"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}},
        "may not use ReadWriteOncePod with other access modes",
    ),
    (
        "persistentvolumeclaims",
        {"spec": {"resources": None}},
        r"spec.resources\[storage\]: Required",
    ),
    (
        "persistentvolumeclaims",
        {"spec": {"resources": {"requests": {"storage": "-1"}}}},
        "must be greater than zero",
    ),
    ("persistentvolumeclaims", {"spec": {"volumeMode": "Tape"}}, "Block.*Filesystem"),
    ("persistentvolumes", {"spec": {"csi": None}}, "must specify a volume type"),
    ("persistentvolumes", {"spec": {"nfs": {"server": "s"}}}, "more than 1 volume type"),
    ("persistentvolumes", {"spec": {"csi": {"volumeHandle": None}}}, "spec.csi.volumeHandle: Req"),
    (
        "persistentvolumes",
        {"spec": {"csi": {"nodePublishSecretRef": {"name": "s"}}}},
        "spec.csi.nodePublishSecretRef.namespace: Required",
    ),
    ("persistentvolumes", {"spec": {"capacity": None}}, r"spec.capacity\[storage\]: Required"),
    (
        "persistentvolumes",
        {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}},
        "at least one node selector term",
    ),
    ("persistentvolumes", {"spec": {"nodeAffinity": {}}}, "required node constraints"),
    ("persistentvolumes", {"spec": {"persistentVolumeReclaimPolicy": "Keep"}}, '"Keep"'),
    ("storageclasses", {"provisioner": None}, "provisioner: Required value"),
    ("storageclasses", {"provisioner": "two words"}, "provisioner.*must be a qualified name"),
    ("storageclasses", {"volumeBindingMode": "Later"}, "WaitForFirstConsumer"),
    ("volumeattachments", {"spec": {"source": None}}, "must specify exactly one"),
    ("volumeattachments", {"spec": {"nodeName": ""}}, "spec.nodeName: Required value"),
    ("csinodes", {"spec": {"drivers": [{"name": "d.io"}]}}, r"drivers\[0\].nodeID: Required"),
    (
        "csinodes",
        {"spec": {"drivers": [{"name": "d.io", "nodeID": "a"}, {"name": "d.io", "nodeID": "b"}]}},
        r'drivers\[1\].name: Duplicate value: "d.io"',
    ),
    ("pods", {"spec": {"containers": []}}, "spec.containers: Required value"),
    (
        "pods",
        {"spec": {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "x"}]}]}},
        r'volumeMounts\[0\].name: Not found: "x"',
    ),
    (
        "pods",
        {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}},
        r"volumes\[0\].persistentVolumeClaim.claimName: Required",
    ),
    (
        "pods",
        {"metadata": {"ownerReferences": [{"kind": "Pod"}]}},
        r"metadata.ownerReferences\[0\].uid: Required",
    ),
    (
        "configmaps",
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                    for n in ("a", "b")
                ]
            }
        },
        "Only one reference can have Controller set to true",
    ),
    ("configmaps", {"data": {"a b": ""}}, "valid config key"),
    ("secrets", {"data": {"k": "not base64!"}}, "use stringData for text"),
    ("leases", {"spec": {"leaseDurationSeconds": 0}}, "must be greater than 0"),
    ("configmaps", {"metadata": {"annotations": {"a b": "c"}}}, "metadata.annotations: Invalid"),
    ("configmaps", {"metadata": {"annotations": {"a": "x" * 262_144}}}, "262144 bytes"),
    ("configmaps", {"metadata": {"finalizers": ["a b/c"]}}, "metadata.finalizers: Invalid"),
    ("configmaps", {"metadata": {"ownerReferences": [owner("a/b/c")]}}, "must be <group>/<ver"),
    ("configmaps", {"metadata": {"ownerReferences": [owner("v1", "Event")]}}, "is disallowed"),
    ("persistentvolumeclaims", {"spec": {"storageClassName": "A_b"}}, "storageClassName: Inval"),
    ("persistentvolumeclaims", source(kind="VolumeSnapshot"), "when referencing the default"),
    ("persistentvolumeclaims", source(name=""), "dataSourceRef.name: Required"),
    (
        "persistentvolumeclaims",
        {"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}, **OTHER}},
        "must match dataSourceRef",
    ),
    ("persistentvolumes", {"spec": {"capacity": {"cpu": "1"}}}, "spec.capacity: Unsupported"),
    ("persistentvolumes", {"spec": {"csi": {"driver": "a b"}}}, "spec.csi.driver: Invalid"),
    ("persistentvolumes", {"spec": {"csi": {"driver": "a" * 64}}}, "more than 63 bytes"),
    (
        "persistentvolumes",
        {"spec": {"csi": None, "hostPath": {"path": "/a/../b"}}},
        "must not contain '..'",
    ),
    (
        "persistentvolumes",
        {"spec": {"csi": None, "hostPath": {"path": "/a"}, "volumeAttributesClassName": "g"}},
        "spec.csi: Required value: has to be specified",
    ),
    ("storageclasses", {"parameters": {"": "x"}}, "field can not be empty"),
    ("storageclasses", {"parameters": {str(n): "" for n in range(513)}}, "more than 512 bytes"),
    ("storageclasses", {"parameters": {"a": "x" * 262_144}}, "more than 262144 bytes"),
    ("volumeattachments", {"spec": {"attacher": "a b"}}, "spec.attacher: Invalid"),
    ("volumeattachments", {"spec": {"nodeName": "A_b"}}, "spec.nodeName: Invalid"),
    (
        "volumeattachments",
        {"spec": {"source": {"persistentVolumeName": None, "inlineVolumeSpec": VOLUME["spec"]}}},
        "inlineVolumeSpec.capacity: Forbidden",
    ),
    ("csinodes", {"spec": {"drivers": [{"name": "a b", "nodeID": "x"}]}}, "name: Invalid"),
    ("csinodes", {"spec": {"drivers": [{"name": "d", "nodeID": "x" * 257}]}}, "256 characters"),
    ("csinodes", keys("z", "z"), r"drivers\[0\]: Duplicate"),
    ("csinodes", keys("a b"), r"drivers\[0\]: Invalid"),
    ("csidrivers", {"spec": {"volumeLifecycleModes": ["x"]}}, "volumeLifecycleModes: Unsupp"),
    ("csidrivers", {"spec": {"tokenRequests": [{"audience": "a"}] * 2}}, "audience: Duplicate"),
    ("csidrivers", {"spec": {"tokenRequests": [{"expirationSeconds": 5}]}}, "10 minutes"),
    ("csidrivers", {"spec": {"nodeAllocatableUpdatePeriodSeconds": 5}}, "10 seconds"),
    ("csistoragecapacities", {"capacity": "-1"}, "capacity: Invalid value"),
    ("csistoragecapacities", {"nodeTopology": {"matchLabels": {"a b": "c"}}}, "matchLabels: Inv"),
    ("csistoragecapacities", {"nodeTopology": {"matchLabels": {"a": "c d"}}}, "matchLabels: Inv"),
    ("volumeattributesclasses", {"driverName": "a b"}, "driverName: Invalid"),
    ("pods", {"spec": {"nodeName": "A_"}}, "spec.nodeName: Invalid"),
]


@pytest.mark.parametrize(("plural", "patch", "words"), CREATIONS)
def test_what_may_not_be_created(api: Api, plural: str, patch: Any, words: str) -> None:
    with pytest.raises(errors.ApiError, match=words) as caught:
        create(api, plural, patch)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.details is not None
    assert caught.value.details["causes"]


@pytest.mark.parametrize("plural", PLACES)
def test_the_valid_ones_are_accepted(api: Api, plural: str) -> None:
    assert create(api, plural)["metadata"]["uid"]


CHANGES = [
    ("persistentvolumeclaims", {"spec": {"accessModes": ["ReadOnlyMany"]}}, "spec is immutable"),
    ("persistentvolumeclaims", {"spec": {"storageClassName": "slow"}}, "spec is immutable"),
    ("persistentvolumes", {"spec": {"csi": {"volumeHandle": "x"}}}, "persistentvolumesource"),
    ("persistentvolumes", {"spec": {"volumeMode": "Block"}}, "spec.volumeMode.*immutable"),
    ("storageclasses", {"parameters": {"a": "b"}}, "parameters.*immutable"),
    ("storageclasses", {"reclaimPolicy": "Retain"}, "reclaimPolicy.*immutable"),
    ("volumeattachments", {"spec": {"nodeName": "m"}}, "spec.*immutable"),
    (
        "csinodes",
        {"spec": {"drivers": [{"name": "d.io", "nodeID": "other"}]}},
        "spec.drivers.*immutable",
    ),
    ("pods", {"spec": {"restartPolicy": "Never"}}, "pod updates may not change"),
    ("secrets", {"type": "other"}, "type.*immutable"),
]


@pytest.mark.parametrize(("plural", "patch", "words"), CHANGES)
def test_what_may_not_be_changed(api: Api, plural: str, patch: Any, words: str) -> None:
    create(api, plural)
    with pytest.raises(errors.ApiError, match=words) as caught:
        change(api, plural, patch)
    assert caught.value.code == 422


ALLOWED = [
    ("persistentvolumeclaims", {"spec": {"volumeName": "v"}}),
    (
        "persistentvolumes",
        {"spec": {"csi": {"controllerExpandSecretRef": {"name": "s", "namespace": "n"}}}},
    ),
    ("persistentvolumes", {"spec": {"claimRef": {"name": "c", "namespace": "default"}}}),
    ("persistentvolumes", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
    ("storageclasses", {"allowVolumeExpansion": True}),
    ("pods", {"spec": {"nodeName": "n"}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "j"}]}}),
    ("leases", {"spec": {"holderIdentity": "me"}}),
]


@pytest.mark.parametrize(("plural", "patch"), ALLOWED)
def test_what_may_be_changed(api: Api, plural: str, patch: Any) -> None:
    before = create(api, plural)
    after = change(api, plural, patch)
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


def test_a_driver_may_correct_how_many_volumes_fit(api: Api) -> None:
    create(api, "csinodes")
    drivers = [{**CSI_NODE["spec"]["drivers"][0], "allocatable": {"count": 5}}]
    assert change(api, "csinodes", {"spec": {"drivers": drivers}})["spec"]["drivers"] == drivers


def test_an_immutable_map_never_changes_again(api: Api) -> None:
    create(api, "configmaps", {"immutable": True})
    for patch in ({"data": {"k": "w"}}, {"immutable": False}):
        with pytest.raises(errors.ApiError, match="immutable"):
            change(api, "configmaps", patch)


def test_a_claim_grows_only_when_bound_and_its_class_allows(api: Api) -> None:
    create(api, "storageclasses")
    create(api, "persistentvolumeclaims")
    bigger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    with pytest.raises(errors.ApiError, match="spec is immutable after creation"):
        change(api, "persistentvolumeclaims", bigger)
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    change(api, "persistentvolumeclaims", bound, "status")
    with pytest.raises(errors.ApiError, match="must support resize") as caught:
        change(api, "persistentvolumeclaims", bigger)
    assert caught.value.code == 403
    change(api, "storageclasses", {"allowVolumeExpansion": True})
    change(api, "persistentvolumeclaims", bigger)
    smaller = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    with pytest.raises(errors.ApiError, match=r"less than status\.capacity"):
        change(api, "persistentvolumeclaims", smaller)


def test_an_attachment_error_has_a_longest_text(api: Api) -> None:
    create(api, "volumeattachments")
    for size, is_allowed in ((1024, True), (1025, False)):
        patch = {"status": {"attached": False, "attachError": {"message": "x" * size}}}
        if is_allowed:
            change(api, "volumeattachments", patch, "status")
            continue
        with pytest.raises(errors.ApiError, match="Too long"):
            change(api, "volumeattachments", patch, "status")


@pytest.mark.parametrize(
    "patch",
    [{"spec": "text"}, {"spec": {"accessModes": 5}}, {"metadata": {"labels": ["a"]}}],
)
def test_values_of_the_wrong_type_are_refused(api: Api, patch: Any) -> None:
    with pytest.raises(errors.ApiError) as caught:
        create(api, "persistentvolumeclaims", patch)
    assert caught.value.code in (400, 422)


@pytest.mark.parametrize("source", [{"kind": "Pod", "name": "x"}, {"kind": "", "name": "x"}])
def test_a_source_that_the_older_field_cannot_have_is_forgotten(api: Api, source: Any) -> None:
    assert (
        "dataSource"
        not in create(api, "persistentvolumeclaims", {"spec": {"dataSource": source}})["spec"]
    )


def test_a_populator_s_source_is_in_both_fields(api: Api) -> None:
    wanted = {"apiGroup": "a.io", "kind": "Seed", "name": "x"}
    made = create(api, "persistentvolumeclaims", {"spec": {"dataSourceRef": wanted}})
    assert made["spec"]["dataSource"] == wanted


def test_the_staging_secret_is_not_looked_at(api: Api) -> None:
    create(api, "persistentvolumes", {"spec": {"csi": {"nodeStageSecretRef": {"name": "s"}}}})


def test_an_object_cannot_be_renamed(api: Api) -> None:
    create(api, "configmaps")
    with pytest.raises(errors.ApiError, match=r"the name of the object \(x\)") as caught:
        change(api, "configmaps", {"metadata": {"name": "x"}})
    assert caught.value.code == 400
