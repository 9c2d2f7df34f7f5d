"""The request counters that are read from an audit log."""

import json
import pathlib

from support import audit


def line(
    verb: str,
    resource: str,
    *,
    group: str = "",
    code: int = 200,
    name: str = "a",
    stage: str = "ResponseComplete",
) -> str:
    reference = {"resource": resource, "name": name} | ({"apiGroup": group} if group else {})
    event = {
        "verb": verb,
        "stage": stage,
        "userAgent": "csi-provisioner/1",
        "objectRef": reference,
        "responseStatus": {"code": code},
    }
    return json.dumps(event) + "\n"


def test_requests_are_counted_by_who_asked_for_what_with_which_outcome(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "audit.log"
    path.write_text(
        line("create", "leases", group="coordination.k8s.io", code=201)
        + line("patch", "persistentvolumes")
        + line("patch", "persistentvolumes", name="b")
    )
    assert audit.AuditLog(path).counters() == [
        audit.Requests("csi-provisioner/1", "create", "leases.coordination.k8s.io", "", 201, 1),
        audit.Requests("csi-provisioner/1", "patch", "persistentvolumes", "", 200, 2),
    ]


def test_what_was_before_counts_no_longer_once_cleared(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(line("create", "pods"))
    log = audit.AuditLog(path)
    log.clear()
    with path.open("a") as handle:
        handle.write(line("delete", "pods"))
    assert [one.verb for one in log.counters()] == ["delete"]


def test_a_line_that_is_still_being_written_waits(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(line("create", "pods") + line("create", "pods", name="fence")[:-5])
    log = audit.AuditLog(path)
    assert not log.has("fence")
    assert len(log.counters()) == 1


def test_a_watch_counts_when_it_begins_and_not_again_when_it_ends(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(line("watch", "pods", stage="ResponseStarted"))
    log = audit.AuditLog(path)
    begun = log.counters()
    assert [(one.verb, one.count) for one in begun] == [("watch", 1)]
    with path.open("a") as handle:
        handle.write(line("watch", "pods"))
    assert log.counters() == begun


def test_controllers_of_one_program_are_told_apart() -> None:
    binary = "kube-controller-manager/v1.37.2 (linux/amd64) kubernetes/abc"
    account = "system:serviceaccount:kube-system:persistent-volume-binder"
    assert audit.program(f"{binary}/{account}") == (
        "kube-controller-manager (persistent-volume-binder)"
    )
    assert audit.program(binary) == "kube-controller-manager"
