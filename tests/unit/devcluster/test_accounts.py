"""What every namespace is given, and pods with it."""

from typing import Any

import pytest
from devcluster import api as apis
from devcluster import errors
from devcluster.loops import accounts, names
from devcluster.loops.actions import Create, Patch
from support import manifests

CERTIFICATE = "-----BEGIN CERTIFICATE-----"
NAMESPACE: dict[str, Any] = {"metadata": {"name": "ns"}}
ACCOUNT: dict[str, Any] = {"metadata": {"name": "default", "namespace": "ns"}}


def bundle(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": "kube-root-ca.crt", "namespace": "ns"}, "data": data}


def test_a_new_namespace_gets_an_account_and_the_certificate() -> None:
    account, made = accounts.decide(NAMESPACE, None, None, CERTIFICATE)
    assert account == Create(names.ACCOUNTS, ACCOUNT)
    assert isinstance(made, Create)
    assert made.body["data"] == {"ca.crt": CERTIFICATE}


def test_a_complete_namespace_is_left_alone() -> None:
    right = bundle(**{"ca.crt": CERTIFICATE})
    assert accounts.decide(NAMESPACE, ACCOUNT, right, CERTIFICATE) == []


def test_a_changed_certificate_is_put_right() -> None:
    (patch,) = accounts.decide(NAMESPACE, ACCOUNT, bundle(other="x"), CERTIFICATE)
    data = {"other": None, "ca.crt": CERTIFICATE}
    assert patch == Patch(names.CONFIG_MAPS, "ns/kube-root-ca.crt", {"data": data})


def test_nothing_is_put_into_a_namespace_that_goes() -> None:
    going = {"metadata": {"name": "ns", "deletionTimestamp": manifests.NOW}}
    assert accounts.decide(going, None, None, CERTIFICATE) == []


def test_a_pod_runs_under_the_default_account_or_one_that_exists() -> None:
    api = apis.Api()
    api.create(api.resource("namespaces"), {"metadata": {"name": "ns"}})
    pods = api.resource("pods")
    made = api.create(pods, manifests.fresh(manifests.pod("a")), "ns")
    assert made["spec"]["serviceAccountName"] == "default"
    body = manifests.fresh(manifests.pod("b", serviceAccountName="mine"))
    with pytest.raises(errors.ApiError, match='serviceaccount "mine" not found'):
        api.create(pods, body, "ns")
    api.create(api.resource("serviceaccounts"), {"metadata": {"name": "mine"}}, "ns")
    assert api.create(pods, body, "ns")["spec"]["serviceAccount"] == "mine"
