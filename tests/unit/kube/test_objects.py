"""Objects decode from what a server sends, also where it writes null."""

import msgspec
import pytest
from bitts.kube import kinds, objects

CLAIM = b"""{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"cart",
"namespace":"shop","uid":"u","resourceVersion":"5","creationTimestamp":"2026-01-01T00:00:00Z",
"managedFields":[{"manager":"x","fieldsV1":{"f:a":{}}}],"finalizers":["kubernetes.io/pvc-protection"]},
"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},
"storageClassName":"fast","volumeMode":"Filesystem","dataSource":null,
"dataSourceRef":{"apiGroup":"snapshot.storage.k8s.io","kind":"VolumeSnapshot","name":"s"}},
"status":{"phase":"Bound","capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"2Gi"},
"allocatedResourceStatuses":{"storage":"NodeResizePending"},"currentVolumeAttributesClassName":"gold",
"modifyVolumeStatus":{"targetVolumeAttributesClassName":"gold","status":"InProgress"},
"conditions":[{"type":"Resizing","status":"True","lastTransitionTime":null}],"later":1}}"""


def test_a_claim_with_all_that_sidecars_read() -> None:
    claim = msgspec.json.decode(CLAIM, type=objects.PersistentVolumeClaim)
    assert (claim.key, claim.uid, claim.deleting) == ("shop/cart", "u", False)
    assert claim.spec.resources.requests == {"storage": "1Gi"}
    assert claim.spec.data_source is None
    assert claim.spec.data_source_ref is not None
    assert claim.spec.data_source_ref.api_group == "snapshot.storage.k8s.io"
    assert claim.status.allocated_resource_statuses == {"storage": "NodeResizePending"}
    assert claim.status.modify_volume_status is not None
    assert claim.status.modify_volume_status.status == "InProgress"
    assert claim.status.conditions[0].type == "Resizing"


@pytest.mark.parametrize(
    ("annotations", "name", "expected"),
    [({}, "a", "a"), ({}, None, ""), ({"x": "y"}, "a", "a")]
    + [({"volume.beta.kubernetes.io/storage-class": beta}, "a", beta) for beta in ("b", "")],
    ids=["spec", "none", "other annotation", "beta", "empty beta"],
)
def test_the_beta_annotation_wins(
    annotations: dict[str, str], name: str | None, expected: str
) -> None:
    metadata = objects.ObjectMeta(annotations=annotations)
    spec = objects.PersistentVolumeClaimSpec(storage_class_name=name)
    assert (
        objects.PersistentVolumeClaim(metadata=metadata, spec=spec).storage_class_name == expected
    )
    volume_spec = objects.PersistentVolumeSpec(storage_class_name=name or "")
    volume = objects.PersistentVolume(metadata=metadata, spec=volume_spec)
    assert volume.storage_class_name == expected


def test_secret_values_are_decoded_and_never_shown() -> None:
    data = b'{"metadata":{"name":"s","namespace":"n"},"data":{"password":"aHVudGVyMg=="}}'
    secret = msgspec.json.decode(data, type=objects.Secret)
    assert secret.data == {"password": b"hunter2"}
    assert "hunter2" not in repr(secret)
    assert "hunter2" not in str(secret.__rich_repr__())


def test_a_node_with_and_without_drivers() -> None:
    bare = msgspec.json.decode(b'{"spec":{"drivers":null}}', type=objects.CSINode)
    assert bare.driver("d") is None
    data = b"""{"spec":{"drivers":[{"name":"d","nodeID":"i-1","topologyKeys":null},
    {"name":"e","nodeID":"i-2","topologyKeys":["zone"],"allocatable":{"count":3}}]}}"""
    node = msgspec.json.decode(data, type=objects.CSINode)
    first, second = node.driver("d"), node.driver("e")
    assert first is not None
    assert second is not None
    assert (first.node_id, first.topology_keys) == ("i-1", None)
    assert (second.topology_keys, second.allocatable) == (
        ("zone",),
        objects.VolumeNodeResources(count=3),
    )


def test_an_attachment_with_an_inline_volume() -> None:
    data = b"""{"metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"},
    "spec":{"attacher":"d","nodeName":"n","source":{"inlineVolumeSpec":{"csi":
    {"driver":"d","volumeHandle":"h","controllerPublishSecretRef":{"name":"s","namespace":"n"}}}}},
    "status":{"attached":true,"attachmentMetadata":{"dev":"sda"},
    "detachError":{"time":"t","message":"m","errorCode":8}}}"""
    attachment = msgspec.json.decode(data, type=objects.VolumeAttachment)
    inline = attachment.spec.source.inline_volume_spec
    assert attachment.deleting
    assert inline is not None
    assert inline.csi is not None
    assert inline.csi.controller_publish_secret_ref is not None
    assert inline.csi.controller_publish_secret_ref.name == "s"
    assert attachment.status.detach_error is not None
    assert attachment.status.detach_error.error_code == 8


def test_defaults_are_shared_by_nobody() -> None:
    one, other = objects.ObjectMeta(), objects.ObjectMeta()
    assert one.labels is not other.labels


@pytest.mark.parametrize(
    ("kind", "name", "namespace", "path"),
    [
        (kinds.NODES, "", "", "/api/v1/nodes"),
        (kinds.NODES, "n1", "", "/api/v1/nodes/n1"),
        (kinds.PERSISTENT_VOLUME_CLAIMS, "", "", "/api/v1/persistentvolumeclaims"),
        (kinds.SECRETS, "s", "ns", "/api/v1/namespaces/ns/secrets/s"),
        (
            kinds.LEASES,
            "",
            "ns",
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases",
        ),
    ],
    ids=["cluster list", "cluster object", "all namespaces", "object", "group"],
)
def test_paths(kind: kinds.Kind[object], name: str, namespace: str, path: str) -> None:
    assert kind.path(name, namespace) == path


def test_a_namespaced_object_needs_its_namespace() -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        kinds.SECRETS.path("s")


def test_references() -> None:
    claim = msgspec.json.decode(CLAIM, type=objects.PersistentVolumeClaim)
    reference = kinds.PERSISTENT_VOLUME_CLAIMS.refer(claim)
    assert (reference.api_version, reference.kind, reference.key, reference.resource_version) == (
        "v1",
        "PersistentVolumeClaim",
        "shop/cart",
        "5",
    )
    assert kinds.STORAGE_CLASSES.reference("fast").api_version == "storage.k8s.io/v1"
    assert kinds.LEASES.resource == "leases.coordination.k8s.io"
    assert kinds.LEASES.untyped().type is dict
    owner = kinds.metadata_only("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
    assert owner.path("r", "n") == "/apis/apps/v1/namespaces/n/replicasets/r"
