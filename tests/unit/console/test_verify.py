"""Verdicts about volumes, the driver's list and the bytes."""

from typing import Any

import pytest
from bitts_console import verify
from bitts_console.verify import PodResult

SUM, OTHER = "a" * 64, "b" * 64
CLAIM: dict[str, Any] = {
    "metadata": {"name": "c", "uid": "u1"},
    "spec": {
        "storageClassName": "k",
        "volumeMode": "Filesystem",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
VOLUME: dict[str, Any] = {
    "metadata": {"name": "pvc-u1"},
    "spec": {
        "storageClassName": "k",
        "volumeMode": "Filesystem",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"uid": "u1"},
        "csi": {"volumeHandle": "h1"},
    },
}


def changed(**spec: object) -> dict[str, Any]:
    return {**VOLUME, "spec": {**VOLUME["spec"], **spec}}


def test_a_volume_as_promised_is_right() -> None:
    assert verify.volume(CLAIM, VOLUME) == verify.Verdict("c", "volume of 1Gi in class k", ok=True)


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        pytest.param(None, "there is none", id="missing"),
        pytest.param(
            changed(claimRef={"uid": "u2"}), "spec.claimRef.uid is 'u2'", id="other-claim"
        ),
        pytest.param(changed(capacity={"storage": "1023Mi"}), "has 1072693248 bytes", id="small"),
        pytest.param(changed(volumeMode="Block"), "spec.volumeMode is 'Block'", id="mode"),
        pytest.param(changed(storageClassName="x"), "spec.storageClassName is 'x'", id="class"),
        pytest.param(changed(accessModes=[]), "spec.accessModes is []", id="access"),
    ],
)
def test_a_volume_not_as_promised_is_named(volume: dict[str, Any] | None, text: str) -> None:
    verdict = verify.volume(CLAIM, volume)
    assert not verdict.ok
    assert text in verdict.text


def test_a_driver_of_our_own_must_have_exactly_the_clusters_volumes() -> None:
    assert verify.at_driver(["h1"], ["h1"], is_exclusive=True).ok
    assert "only in the cluster: h1" in verify.at_driver(["h1"], [], is_exclusive=True).text
    stray = verify.at_driver(["h1"], ["h1", "h2"], is_exclusive=True)
    assert not stray.ok
    assert "only at the driver: h2" in stray.text


def test_a_driver_that_others_use_may_have_more() -> None:
    assert verify.at_driver(["h1"], ["h1", "h2"], is_exclusive=False).ok
    assert not verify.at_driver(["h1"], ["h2"], is_exclusive=False).ok


@pytest.mark.parametrize(
    ("results", "ok", "text"),
    [
        pytest.param(
            [PodResult("w", "d", "Succeeded", SUM), PodResult("r", "d", "Succeeded", SUM)],
            True,
            "bytes with sha256 aaaaaaaaaaaa…, told by w, r",
            id="equal",
        ),
        pytest.param(
            [PodResult("w", "d", "Succeeded", SUM), PodResult("r", "d", "Succeeded", OTHER)],
            False,
            "the bytes differ: w has aaaaaaaaaaaa; r has bbbbbbbbbbbb",
            id="different",
        ),
        pytest.param(
            [PodResult("w", "d", "Failed", SUM)], False, "pod w ended as Failed", id="failed"
        ),
        pytest.param(
            [PodResult("w", "d", "Succeeded", "")], False, "pod w left no checksum", id="silent"
        ),
    ],
)
def test_bytes(results: list[PodResult], ok: bool, text: str) -> None:
    (verdict,) = verify.data(results)
    assert verdict.ok is ok
    assert text in verdict.text


def test_data_is_judged_one_by_one() -> None:
    verdicts = verify.data(
        [PodResult("w", "d1", "Succeeded", SUM), PodResult("x", "d2", "Succeeded", OTHER)]
    )
    assert [(verdict.subject, verdict.ok) for verdict in verdicts] == [("d1", True), ("d2", True)]


def test_a_pods_result_is_its_termination_message() -> None:
    terminated = {"exitCode": 0, "message": f"{SUM}\n"}
    status = {
        "phase": "Succeeded",
        "containerStatuses": [{"state": {"terminated": terminated}}],
    }
    pod = {"metadata": {"name": "p"}, "status": status}
    assert verify.pod_result(pod, "d") == PodResult("p", "d", "Succeeded", SUM)
    assert verify.pod_result({"metadata": {"name": "p"}}, "d").phase == "Pending"
