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
        {"spec": {"csi": {"nodeStageSecretRef": {"name": "s"}}}},
        "spec.csi.nodeStageSecretRef.namespace: Required",
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
    ("configmaps", {"metadata": {"name": "other"}}, "metadata.name.*immutable"),
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
