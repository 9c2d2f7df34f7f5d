"""The node agent's pure parts: commands, registrations, paths, mount tables."""

import pathlib
import stat
from typing import Any

import pytest
from devcluster.node import (
    app,
    commands,
    membership,
    model,
    mountinfo,
    paths,
    plugins,
    sandbox,
    sources,
)
from devcluster.node.containers import StartError
from devcluster.node.model import Mounted

LAYOUT = paths.Layout(pathlib.Path("/r"))
CLAIM = Mounted(name="v", driver="d", handle="h", volume="pv", staging="/s", target="/t/mount")
RECORD = model.Record(uid="u", namespace="ns", name="p", volumes=(CLAIM,), ready=True)


def command(container: dict[str, Any], **spec: Any) -> Any:
    one = {"name": "main", "command": ["run"], **container}
    meta = model.PodMeta(name="p", namespace="ns", uid="u")
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
               {"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}},
               {"name": "h", "hostPath": {"path": "/host"}}]  # fmt: skip
    pod = model.Pod(metadata=meta, spec={"containers": [one], "volumes": volumes, **spec})
    return commands.build(pod, "main", 0, RECORD, LAYOUT)


def test_volumes_that_no_container_uses_are_left_alone() -> None:
    spec = {
        "initContainers": [{"name": "i", "volumeDevices": [{"name": "disk", "devicePath": "/d"}]}],
        "containers": [{"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/m"}]}],
        "volumes": [{"name": name} for name in ("data", "disk", "spare")],
    }
    assert sources.used(spec) == {"data", "disk"}


def test_volumes_are_mounted_outer_folders_first() -> None:
    mounts: list[dict[str, Any]] = [
        {"name": "e", "mountPath": "/a/b"},
        {"name": "v", "mountPath": "/a"},
        {"name": "s", "mountPath": "/s"},
        {"name": "h", "mountPath": "h", "readOnly": True},
    ]
    found = command({"volumeMounts": mounts}).mounts
    assert [(one.source, one.target, one.readonly) for one in found] == [
        ("/t/mount", "/a", False),
        ("/r/pods/u/volumes/kubernetes.io~secret/s", "/s", True),
        ("/host", "/h", True),
        ("/r/pods/u/volumes/kubernetes.io~empty-dir/e", "/a/b", False),
    ]


def test_devices_identity_and_environment() -> None:
    found = command(
        {
            "args": ["$HOME", "x y"],
            "volumeDevices": [{"name": "v", "devicePath": "/dev/d"}],
            "securityContext": {"runAsUser": 5},
            "env": [
                {"name": "A", "value": "$(B)"},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            ],
        },
        securityContext={"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]},
        hostname="h",
    )
    assert found.argv == ["run", "$HOME", "x y"]
    assert [(one.source, one.target) for one in found.mounts] == [("/t/mount", "/dev/d")]
    assert (found.uid, found.gid, found.groups) == (5, 2, [4, 3])
    assert {"A": "$(B)", "N": "ns", "HOSTNAME": "p"}.items() <= found.env.items()
    assert found.hostname == "h"


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"command": []}, "command"),
        ({"envFrom": [{}]}, "envFrom"),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}, "valueFrom"),
        ({"volumeMounts": [{"name": "x", "mountPath": "/x"}]}, "volumeMounts"),
        ({"volumeDevices": [{"name": "e", "devicePath": "/x"}]}, "volumeDevices"),
    ],
)
def test_what_cannot_be_served_is_named(container: dict[str, Any], field: str) -> None:
    with pytest.raises(StartError, match=field):
        command(container)


def test_sub_paths_stay_inside(tmp_path: pathlib.Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    mounts = [{"name": "h", "mountPath": "/x", "subPath": "out/passwd"}]
    volumes = [{"name": "h", "hostPath": {"path": str(tmp_path)}}]
    with pytest.raises(StartError, match="leads out"):
        command({"volumeMounts": mounts}, volumes=volumes)
    mounts[0]["subPath"] = "new/folder"
    command({"volumeMounts": mounts}, volumes=volumes)
    assert (tmp_path / "new/folder").is_dir()


def test_sub_paths_are_made_as_open_as_their_volume(tmp_path: pathlib.Path) -> None:
    mounts = [{"name": "h", "mountPath": "/x", "subPath": "a/b"}]
    volumes = [{"name": "h", "hostPath": {"path": str(tmp_path)}}]
    tmp_path.chmod(0o2770)
    command({"volumeMounts": mounts}, volumes=volumes)
    made = tmp_path / "a/b"
    assert stat.S_IMODE(made.stat().st_mode) == 0o2770
    made.chmod(0o700)
    command({"volumeMounts": mounts}, volumes=volumes)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700, "one that is there stays as it is"


def test_links_are_followed_as_the_container_sees_them(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("/real")
    (tmp_path / "loop").symlink_to("loop")
    root = str(tmp_path)
    assert sandbox.inside(root, "/link/x") == f"{root}/real/x"
    assert sandbox.inside(root, "../../../x") == f"{root}/x"
    assert sandbox.inside(root, "/loop/x").startswith(root)


def node(labels: dict[str, str] | None = None, ids: str | None = None) -> dict[str, Any]:
    annotations = {"csi.volume.kubernetes.io/nodeid": ids} if ids is not None else None
    return {"metadata": {"labels": labels, "annotations": annotations}}


def test_a_driver_leaves_labels_and_its_node_id() -> None:
    entry = membership.Registered("d", "id", {"zone": "z"}, limit=2**40)
    assert membership.node_change(node(ids='{"other":"x"}'), entry) == {
        "metadata": {
            "labels": {"zone": "z"},
            "annotations": {"csi.volume.kubernetes.io/nodeid": '{"d":"id","other":"x"}'},
        }
    }
    assert membership.csi_entry(entry) == {
        "name": "d",
        "nodeID": "id",
        "topologyKeys": ["zone"],
        "allocatable": {"count": 2**31 - 1},
    }
    assert "allocatable" not in membership.csi_entry(membership.Registered("d", "id"))


def test_contradictions_are_refused_and_scribbles_replaced() -> None:
    entry = membership.Registered("d", "id", {"zone": "z"})
    with pytest.raises(membership.RefusedError, match="zone=z contradicts"):
        membership.node_change(node({"zone": "other"}), entry)
    change = membership.node_change(node({"zone": "z"}, "not json"), entry)
    assert change["metadata"]["annotations"] == {"csi.volume.kubernetes.io/nodeid": '{"d":"id"}'}
    gone = membership.node_change_without(node(ids='{"d":"id"}'), "d")
    assert gone["metadata"]["annotations"] == {"csi.volume.kubernetes.io/nodeid": None}


def test_paths_are_the_kubelets() -> None:
    digest = "aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123"  # of "h"
    csi = "/r/plugins/kubernetes.io/csi"
    assert str(LAYOUT.staging("d", "pv", "h", block=False)) == f"{csi}/d/{digest}/globalmount"
    assert str(LAYOUT.staging("d", "pv", "h", block=True)) == f"{csi}/volumeDevices/staging/pv"
    target = "/r/pods/u/volumes/kubernetes.io~csi/pv/mount"
    assert str(LAYOUT.target("u", "pv", block=False)) == target
    assert str(LAYOUT.target("u", "pv", block=True)) == f"{csi}/volumeDevices/publish/pv/u"


def test_mount_points_are_read_with_their_escapes() -> None:
    text = r"36 35 98:0 / /mnt/a\040b rw - ext3 /dev/root rw" + "\n"
    assert mountinfo.targets(text) == ["/mnt/a b"]


def test_only_live_looking_sockets_count(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    assert plugins.sockets(tmp_path) == {}
    assert plugins.sockets(tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("capabilities", "can"),
    [("000001fffeffffff", True), ("00000000a80425fb", False)],
    ids=["root", "root in a plain container"],
)
def test_mount_rights(tmp_path: pathlib.Path, capabilities: str, can: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    assert app.has_mount_rights(status) is can
