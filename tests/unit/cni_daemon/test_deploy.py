"""What is deployed fits the program: flags that exist, paths that agree, no more rights."""

import configparser
import pathlib
import shlex
from typing import Any

import pytest
import yaml
from bitts.core import configfile
from cni_daemon import names, options

DEPLOY = pathlib.Path(__file__).parents[3] / "services" / "cni-daemon" / "deploy"


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "daemonset.yaml").read_text())
    return {each["kind"]: each for each in documents}


@pytest.fixture(scope="module")
def pod(manifests: dict[str, Any]) -> Any:
    return manifests["DaemonSet"]["spec"]["template"]["spec"]


def chosen(folder: pathlib.Path, configuration: str, arguments: list[str]) -> options.Options:
    path = folder / "cni-daemon.toml"
    path.write_text(configuration)
    rest = [each for each in arguments if not each.startswith("--config=")]
    return options.Flags().resolve([f"--config={path}", *rest])


def test_the_daemon_set_runs_with_the_configuration_it_brings(
    manifests: dict[str, Any], pod: Any, tmp_path: pathlib.Path
) -> None:
    (container,) = pod["containers"]
    text = manifests["ConfigMap"]["data"]["cni-daemon.toml"]
    found = chosen(tmp_path, text, container["args"])
    probe = container["livenessProbe"]["httpGet"]
    assert found.http.endpoint == f"{probe['host']}:{probe['port']}"
    assert (found.socket, str(found.state)) == (names.SOCKET, names.STATE_DIRECTORY)
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    for path in (found.socket, found.runtime.socket, str(found.state), "/etc/bitts/x"):
        assert any(pathlib.PurePath(path).is_relative_to(each) for each in mounted), path


def test_every_path_is_the_hosts_own(pod: Any) -> None:
    """The shim and the journal have paths in them that the runtime and later lives use."""
    hosts = {
        each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each
    }
    for container in (*pod["containers"], *pod["initContainers"]):
        for mount in container["volumeMounts"]:
            if mount["name"] in hosts:
                assert mount["mountPath"].removeprefix("/var") == hosts[mount["name"]].removeprefix(
                    "/var"
                )


def test_it_has_the_hosts_network_but_not_its_processes(pod: Any) -> None:
    assert pod["hostNetwork"] is True
    assert "hostPID" not in pod
    assert pod["automountServiceAccountToken"] is False
    namespaces = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "namespaces"]
    assert {each["mountPropagation"] for each in namespaces} == {"HostToContainer"}


def test_the_unit_runs_with_the_configuration_beside_it(tmp_path: pathlib.Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # keys of units have cases
    unit.read_string((DEPLOY / "cni-daemon.service").read_text())
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert service["ExecStartPre"] == f"{program} install"
    text = (DEPLOY / "cni-daemon.toml").read_text()
    assert chosen(tmp_path, text, arguments).runtime.socket == "/run/containerd/containerd.sock"
    assert service["Type"] == "exec"
    assert service["Restart"] == "always"


def test_samples_name_only_flags_that_exist(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text((DEPLOY / "cni-daemon.toml").read_text())
    assert configfile.arguments(options.Flags().set, str(path))
