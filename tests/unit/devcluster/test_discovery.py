"""What the server says it serves, in the old, the aggregated and the OpenAPI form."""

from typing import Any

from devcluster import discovery, server
from devcluster.api import Api
from devcluster.resources import Registry, Resource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def document(path: str, accept: str = "", api: Api | None = None) -> Any:
    return server.discovery_document(api or Api(), path, accept)


def test_the_old_form_lists_groups_and_their_resources() -> None:
    assert document("/api")["versions"] == ["v1"]
    groups = {
        group["name"]: group["preferredVersion"]["version"] for group in document("/apis")["groups"]
    }
    assert groups["storage.k8s.io"] == "v1"
    assert "" not in groups
    listed = {r["name"]: r for r in document("/api/v1")["resources"]}
    assert listed["persistentvolumeclaims"]["shortNames"] == ("pvc",)
    assert listed["persistentvolumeclaims/status"]["verbs"] == ["get", "patch", "update"]
    assert document("/apis/storage.k8s.io")["kind"] == "APIGroup"
    assert not document("/api/v1")["resources"][0]["namespaced"]


def test_the_aggregated_form_holds_the_same() -> None:
    old = {
        r["name"] for r in document("/apis/storage.k8s.io/v1")["resources"] if "/" not in r["name"]
    }
    (group,) = [
        item
        for item in document("/apis", AGGREGATED)["items"]
        if item["metadata"]["name"] == "storage.k8s.io"
    ]
    assert {r["resource"] for r in group["versions"][0]["resources"]} == old
    (core,) = document("/api", AGGREGATED)["items"]
    assert core["metadata"]["name"] == ""


def test_clients_are_offered_the_most_mature_version_first() -> None:
    registry = Registry()
    versions = ("v1beta1", "v1alpha1", "odd", "v2", "v1", "v1beta2")
    registry.replace(
        "x.io", "things", [Resource("x.io", v, "things", "Thing", True) for v in versions]
    )
    assert list(discovery.groups(registry)["x.io"]) == [
        "v2",
        "v1",
        "v1beta2",
        "v1beta1",
        "v1alpha1",
        "odd",
    ]


def test_every_kind_says_that_the_server_validates() -> None:
    paths = document("/openapi/v3")["paths"]
    assert set(paths) >= {"api/v1", "apis/storage.k8s.io/v1"}
    whole = document("/openapi/v3/apis/storage.k8s.io/v1")
    patch = whole["paths"]["/apis/storage.k8s.io/v1/csinodes/{name}"]["patch"]
    assert patch["parameters"][0]["name"] == "fieldValidation"
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "CSINode"


def test_what_is_not_served_has_no_document() -> None:
    for path in (
        "/api/v2",
        "/apis/nonsense.io",
        "/apis/storage.k8s.io/v1beta1",
        "/openapi/v2",
        "/x",
    ):
        assert document(path) is None
