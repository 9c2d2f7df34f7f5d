"""What containers and volumes of a Pod may not be."""

from typing import Any

import pytest
from devcluster import pod_rules

MOUNT = {"name": "v", "mountPath": "/v"}


def pod(*, volumes: list[Any] | None = None, **container: Any) -> dict[str, Any]:
    made = {"name": "c", "image": "i", **container}
    given = [{"name": "v", "emptyDir": {}}] if volumes is None else volumes
    return {"spec": {"containers": [made], "volumes": given}}


def wrong(obj: dict[str, Any]) -> list[str]:
    return [str(one) for rule in (pod_rules.containers, pod_rules.volumes) for one in rule(obj)]


def test_a_pod_as_people_write_it_is_right() -> None:
    device = {"name": "raw", "devicePath": "/dev/raw"}
    volumes = [
        {"name": "v", "emptyDir": {}},
        {"name": "raw", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    assert wrong(pod(volumes=volumes, volumeMounts=[MOUNT], volumeDevices=[device])) == []


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"name": "C_"}, "spec.containers[0].name: Invalid"),
        ({"volumeMounts": [{"name": "v"}]}, "volumeMounts[0].mountPath: Required"),
        ({"volumeMounts": [MOUNT, MOUNT]}, "volumeMounts[1].mountPath: Invalid"),
        ({"volumeMounts": [{**MOUNT, "subPath": "../x"}]}, "volumeMounts.subPath: Invalid"),
        (
            {"volumeMounts": [MOUNT], "volumeDevices": [{"name": "v", "devicePath": "/dev/v"}]},
            'volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices',
        ),
    ],
)
def test_mistakes_in_a_container(container: dict[str, Any], field: str) -> None:
    assert any(field in one for one in wrong(pod(**container)))


@pytest.mark.parametrize(
    ("volumes", "field"),
    [
        ([{"name": "X_", "emptyDir": {}}], "volumes[0].name: Invalid"),
        ([{"name": "v", "emptyDir": {}}] * 2, "volumes[1].name: Duplicate"),
        ([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}], "hostPath: Forbidden"),
        ([{"name": "v", "ephemeral": {}}], "ephemeral.volumeClaimTemplate: Required"),
        (
            [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
            "volumeClaimTemplate.spec.resources[storage]: Required",
        ),
    ],
)
def test_mistakes_in_a_volume(volumes: list[Any], field: str) -> None:
    assert any(field in one for one in wrong(pod(volumes=volumes)))
