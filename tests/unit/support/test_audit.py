"""The request counters that are read from an audit log."""

import json
import pathlib

from support import audit


def line(verb: str, resource: str, *, group: str = "", code: int = 200, name: str = "a") -> str:
    reference = {"resource": resource, "name": name} | ({"apiGroup": group} if group else {})
    event = {
        "verb": verb,
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
