"""What kubectl get shows, and how paths are read."""

from typing import Any

import pytest
from devcluster import errors, requests, tables
from devcluster.resources import Registry

REGISTRY = Registry()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (130, "2m10s"), (600, "10m"), (3 * 3600, "3h"),
        (4 * 3600 + 60, "4h1m"), (9 * 3600, "9h"), (3 * 86400, "3d"), (3 * 86400 + 3600, "3d1h"),
        (100 * 86400, "100d"), (800 * 86400, "2y70d"), (9 * 365 * 86400, "9y"),
    ],
)  # fmt: skip
def test_durations_have_at_most_two_units(seconds: int, text: str) -> None:
    assert tables.duration(seconds) == text


def cells(plural: str, obj: dict[str, Any], group: str = "") -> dict[str, Any]:
    whole = {"metadata": {"name": "x", "creationTimestamp": "2000-01-01T00:00:00Z"}, **obj}
    table = tables.table(REGISTRY.resource(plural, group), [whole], {}, "Metadata")
    names = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    assert row["object"] == tables.partial(whole)
    return dict(zip(names, row["cells"], strict=True))


def test_a_bound_claim_shows_what_it_has() -> None:
    shown = cells(
        "persistentvolumeclaims",
        {
            "spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Block"},
            "status": {
                "phase": "Bound",
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            },
        },
    )
    wanted = {"Status": "Bound", "Volume": "v", "Capacity": "1Gi", "Access Modes": "RWO,RWX"}
    assert wanted.items() <= shown.items()
    assert (shown["StorageClass"], shown["VolumeMode"]) == ("fast", "Block")
    assert shown["VolumeAttributesClass"] == "<unset>"


def test_an_unbound_claim_shows_no_capacity() -> None:
    shown = cells("persistentvolumeclaims", {"spec": {}, "status": {"phase": "Pending"}})
    assert (shown["Status"], shown["Capacity"], shown["Access Modes"]) == ("Pending", "", "")


def test_what_is_being_deleted_is_terminating() -> None:
    metadata = {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    for plural in ("persistentvolumes", "pods"):
        assert (
            cells(plural, {"metadata": metadata, "status": {"phase": "Bound"}})["Status"]
            == "Terminating"
        )


def test_a_volume_shows_its_claim() -> None:
    shown = cells("persistentvolumes", {"spec": {"claimRef": {"namespace": "shop", "name": "c"}}})
    assert shown["Claim"] == "shop/c"


def test_a_pod_shows_its_containers() -> None:
    statuses = [
        {"ready": True, "restartCount": 2},
        {"ready": False, "state": {"waiting": {"reason": "Crash"}}},
    ]
    spec = {"containers": [{}, {}], "nodeName": "n1"}
    shown = cells(
        "pods", {"spec": spec, "status": {"phase": "Running", "containerStatuses": statuses}}
    )
    assert (shown["Ready"], shown["Status"], shown["Restarts"], shown["Node"]) == (
        "1/2",
        "Crash",
        "2",
        "n1",
    )


def test_a_default_class_is_marked() -> None:
    about = {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    assert (
        cells("storageclasses", {"metadata": about}, "storage.k8s.io")["Name"] == "fast (default)"
    )


def test_every_builtin_kind_has_a_table_even_for_an_empty_object() -> None:
    for resource in REGISTRY:
        shown = cells(resource.plural, {}, resource.group)
        assert shown["Name"] == "x"


ROUTES = [
    ("GET", "/api/v1/pods", {}, ("list", "pods", "", "", "")),
    ("GET", "/api/v1/namespaces/a/pods", {"watch": "1"}, ("watch", "pods", "a", "", "")),
    ("GET", "/api/v1/namespaces/a/pods/p", {}, ("get", "pods", "a", "p", "")),
    ("PATCH", "/api/v1/namespaces/a/pods/p/status", {}, ("patch", "pods", "a", "p", "status")),
    ("POST", "/api/v1/namespaces/a/pods", {}, ("create", "pods", "a", "", "")),
    ("POST", "/api/v1/namespaces/a/pods/p/binding", {}, ("create", "pods", "a", "p", "binding")),
    ("GET", "/api/v1/namespaces/a", {}, ("get", "namespaces", "", "a", "")),
    ("PUT", "/api/v1/namespaces/a/finalize", {}, ("update", "namespaces", "", "a", "finalize")),
    ("DELETE", "/apis/storage.k8s.io/v1/csinodes/n", {}, ("delete", "csinodes", "", "n", "")),
    (
        "DELETE",
        "/apis/storage.k8s.io/v1/csinodes",
        {},
        ("deletecollection", "csinodes", "", "", ""),
    ),
]


@pytest.mark.parametrize(("method", "path", "query", "expected"), ROUTES)
def test_paths_are_read(method: str, path: str, query: dict[str, str], expected: Any) -> None:
    call = requests.route(REGISTRY, method, path, query)
    found = (call.verb, call.resource.plural, call.namespace, call.name, call.subresource)
    assert found == expected


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v2/pods", 404),
        ("GET", "/api/v1/namespaces/a/nodes", 404),
        ("GET", "/api/v1/pods/p", 404),
        ("GET", "/api/v1/namespaces/a/configmaps/c/status", 404),
        ("GET", "/api/v1/namespaces/a/pods/p/status/x", 404),
        ("POST", "/api/v1/pods", 405),
        ("PUT", "/api/v1/namespaces/a/pods", 405),
        ("OPTIONS", "/api/v1/nodes", 405),
    ],
)
def test_paths_that_lead_nowhere(method: str, path: str, code: int) -> None:
    with pytest.raises(errors.ApiError) as caught:
        requests.route(REGISTRY, method, path, {})
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("accept", "shape"),
    [
        ("application/json", ""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", ""),
        ("application/vnd.kubernetes.protobuf,application/json", ""),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "APIGroupDiscoveryList",
        ),
        ("*/*", ""),
    ],
)
def test_the_shape_asked_for(accept: str, shape: str) -> None:
    assert requests.shape(accept) == shape


def test_a_page_token_survives_the_way_to_the_client() -> None:
    assert requests.read_page_token(requests.page_token(7, ("a", "b"))) == (7, ("a", "b"))
    with pytest.raises(errors.ApiError, match="continue key is not valid"):
        requests.read_page_token("nonsense")
