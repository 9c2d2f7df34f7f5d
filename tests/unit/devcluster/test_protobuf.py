"""Protobuf bodies as Go clients send them: bytes are put together by hand, number by number."""

from typing import Any

import pytest
from devcluster import errors, protobuf
from hypothesis import given, settings
from hypothesis import strategies as st


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def put(number: int, value: Any) -> bytes:
    """One field: numbers as varints, text and nested messages with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(key: str, value: Any) -> bytes:
    return put(1, key) + put(2, value)


def body(version: str, kind: str, *fields: bytes) -> bytes:
    about = put(1, put(1, version) + put(2, kind))
    return b"k8s\x00" + about + put(2, b"".join(fields)) + put(3, "") + put(4, "")


META = put(1, put(1, "x") + put(2, "") + put(3, "shop") + put(8, b"") + put(14, "a.io/b"))
META_VALUE = {"name": "x", "namespace": "shop", "finalizers": ["a.io/b"]}


def test_a_volume_has_its_source_spread_into_the_spec() -> None:
    affinity = put(1, put(1, put(1, "zone") + put(2, "In") + put(3, "a") + put(3, "b")))
    csi = put(1, "d.io") + put(2, "handle") + put(3, 0) + put(5, entry("k", "v"))
    csi += put(9, put(1, "s") + put(2, "ns"))
    spec = put(1, entry("storage", put(1, "1Gi"))) + put(2, put(22, csi)) + put(3, "ReadWriteOnce")
    spec += put(6, "") + put(8, "Block") + put(9, put(1, affinity))
    found = protobuf.decode(body("v1", "PersistentVolume", META, put(2, spec), put(3, b"")))
    assert found == {
        "kind": "PersistentVolume",
        "apiVersion": "v1",
        "metadata": META_VALUE,
        "spec": {
            "capacity": {"storage": "1Gi"},
            "csi": {
                "driver": "d.io",
                "volumeHandle": "handle",
                "volumeAttributes": {"k": "v"},
                "controllerExpandSecretRef": {"name": "s", "namespace": "ns"},
            },
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Block",
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "zone", "operator": "In", "values": ["a", "b"]}
                            ]
                        }
                    ]
                }
            },
        },
        "status": {},
    }


def test_times_have_the_precision_of_their_kind() -> None:
    moment = put(1, 1_700_000_000) + put(2, 123_456_789)
    about = put(2, put(1, "Pod") + put(3, "p"))
    found = protobuf.decode(
        body("v1", "Event", META, about, put(6, moment), put(8, 3), put(10, moment))
    )
    assert found["firstTimestamp"] == "2023-11-14T22:13:20Z"
    assert found["eventTime"] == "2023-11-14T22:13:20.123456Z"
    assert found["count"] == 3


def test_the_two_kinds_of_event_have_fields_of_their_own() -> None:
    found = protobuf.decode(
        body("events.k8s.io/v1", "Event", META, put(7, "Why"), put(10, "words"))
    )
    assert (found["reason"], found["note"]) == ("Why", "words")


def test_zeros_stay_where_they_mean_something() -> None:
    found = protobuf.decode(
        body("v1", "PersistentVolumeClaim", META, put(2, put(5, "") + put(6, "")))
    )
    assert found["spec"] == {"storageClassName": ""}
    lease = put(2, put(1, "") + put(2, 15) + put(5, 0))
    found = protobuf.decode(body("coordination.k8s.io/v1", "Lease", lease))
    assert found["spec"] == {
        "holderIdentity": "",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
    }


def test_bytes_become_base64() -> None:
    found = protobuf.decode(body("v1", "Secret", META, put(2, entry("k", b"\x00v"))))
    assert found["data"] == {"k": "AHY="}


def test_delete_options_carry_preconditions() -> None:
    found = protobuf.decode(
        body("v1", "DeleteOptions", put(1, 0), put(2, put(1, "uid")), put(5, "All"))
    )
    assert found["gracePeriodSeconds"] == 0
    assert found["preconditions"] == {"uid": "uid"}
    assert found["dryRun"] == ["All"]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        pytest.param(b"{}", 400, "magic", id="no magic"),
        pytest.param(body("v1", "Node", META), 415, "kind 'Node'", id="unknown kind"),
        pytest.param(
            body("v1", "ConfigMap", put(99, 1)), 415, "field 99 of ConfigMap", id="unknown field"
        ),
        pytest.param(body("v1", "ConfigMap", META)[:-14], 400, "cannot be read", id="cut off"),
        pytest.param(body("v1", "ConfigMap", put(1, 5)), 400, "wire type", id="wrong wire type"),
        pytest.param(body("v1", "ConfigMap", b"\x0b"), 400, "wire type 3", id="group"),
        pytest.param(
            body("v1", "ConfigMap", put(1, put(1, b"\xff"))), 400, "cannot be read", id="utf-8"
        ),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, code: int, words: str) -> None:
    with pytest.raises(errors.ApiError, match=words) as caught:
        protobuf.decode(data)
    assert caught.value.code == code


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for whole in (b"k8s\x00" + data, body("v1", "PersistentVolume", data)):
        try:
            protobuf.decode(whole)
        except errors.ApiError as error:
            assert error.code in (400, 415)  # noqa: PT017 - either is right


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@settings(max_examples=50)
def test_signed_numbers_come_through(value: int) -> None:
    found = protobuf.decode(body("v1", "DeleteOptions", put(1, value)))
    assert found["gracePeriodSeconds"] == value
