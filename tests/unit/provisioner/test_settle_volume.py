from typing import Any

import pytest
from bitts.core.plans import Done, Failed, RetryLater
from bitts.kube import errors
from bitts.rpc.codes import Code, RpcError
from bitts.volumes.secrets import SecretRef
from csi_provisioner import decide, model, settle
from support import claims

SEEN = claims.volume_seen()
ERASE = model.EraseVolume("vol-1", None, "why")
MISSING = errors.NotFound("not found", status=404)


def failed(action: Any, error: Exception) -> decide.VolumePlan:
    return settle.settle_volume(SEEN, Failed(action, error))


def test_a_success_lets_the_plan_go_on() -> None:
    assert settle.settle_volume(SEEN, Done(ERASE)) == []


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.INTERNAL, Code.NOT_FOUND])
def test_no_code_is_special_when_deleting(code: Code) -> None:
    error = RpcError(code, "text")
    assert failed(ERASE, error) == [
        model.Report(str(error), is_failure=True),
        RetryLater(str(error)),
    ]


def test_a_secret_that_cannot_be_read_is_named() -> None:
    erase = model.EraseVolume("vol-1", SecretRef("n", "s"), "why")
    report, _ = failed(erase, errors.ServerError("broken", status=500))
    assert report.reason.startswith("error getting secret s in namespace n: ")


def test_an_object_that_is_gone_is_deleted() -> None:
    [step] = failed(model.DeleteObject("why"), MISSING)
    assert isinstance(step, model.CountDeleted)


@pytest.mark.parametrize("action", [model.RemoveFinalizer("why"), model.AddFinalizer("why")])
def test_a_finalizer_of_an_object_that_is_gone_needs_nothing(action: model.VolumeAction) -> None:
    assert failed(action, MISSING) == []


def test_missing_permissions_are_named() -> None:
    report, retry = failed(model.RemoveFinalizer("why"), errors.Forbidden("no", status=403))
    assert isinstance(report, model.Report)
    assert "needs patch and delete on persistentvolumes" in report.reason
    assert isinstance(retry, RetryLater)


def test_other_errors_are_retried_without_a_word() -> None:
    error = errors.Conflict("changed", status=409)
    assert failed(model.DeleteObject("why"), error) == [RetryLater(str(error))]
