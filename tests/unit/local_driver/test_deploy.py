"""What there is to deploy: manifests whose flags exist, and a maker of certificates that fit."""

import asyncio
import os
import pathlib
import re
import ssl
import subprocess
from typing import Any

import pytest
import yaml
from bitts.rpc import tls
from local_driver import options, roles
from local_driver.cluster import roster

ROOT = pathlib.Path(__file__).parents[3]
DEPLOY = ROOT / "services/local-driver/deploy"


def documents(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def in_deploy() -> list[dict[str, Any]]:
    return documents((DEPLOY / "several-nodes.yaml").read_text())


def in_docs() -> list[dict[str, Any]]:
    text = (ROOT / "docs/local-driver.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return [one for block in blocks for one in documents(block)]


def drivers(found: list[dict[str, Any]]) -> list[options.Options]:
    """Read the flags of every container that runs the driver."""
    pods = [one["spec"]["template"]["spec"] for one in found if "template" in one.get("spec", {})]
    containers = [one for pod in pods for one in pod["containers"]]
    flags = options.Flags()
    return [
        flags.options(flags.set.parse(one["args"]))
        for one in containers
        if "/local-driver:" in one["image"]
    ]


def test_the_manifests_for_several_nodes_have_a_driver_of_each_role() -> None:
    node, controller = drivers(in_deploy())
    assert (node.roles.role, controller.roles.role) == (roles.Role.NODE, roles.Role.CONTROLLER)
    assert node.driver_name == controller.driver_name
    assert node.roles.link.listen == ("", 9809)


def test_the_manifests_in_the_documentation_have_flags_that_exist() -> None:
    (alone,) = drivers(in_docs())
    assert alone.roles.role is roles.Role.ALL


def test_what_the_manifest_writes_as_list_of_nodes_is_read() -> None:
    text = (DEPLOY / "several-nodes.yaml").read_text()
    assert (
        '{.metadata.name}={.status.addresses[?(@.type=="InternalIP")].address}:9809{"\\n"}' in text
    )
    assert roster.parse("n1=10.0.0.1:9809\nn2=10.0.0.2:9809\n", "") == {
        "n1": ("10.0.0.1", 9809),
        "n2": ("10.0.0.2", 9809),
    }


def make(folder: pathlib.Path, *nodes: str) -> None:
    command = [str(DEPLOY / "certificates.sh"), str(folder), *nodes]
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "DRIVER": "d.example"}
    )


def files(folder: pathlib.Path, who: str) -> tls.Files:
    names = (f"{who}.crt", f"{who}.key", "ca.crt")
    return tls.Files(*(str(folder / name) for name in names))


def handshake(server: tls.Files, client: tls.Files) -> tuple[frozenset[str], frozenset[str]]:
    """Shake hands in memory; return the names that client and server have seen."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = []
    for is_server, own, incoming, outgoing in (
        (True, server, to_server, to_client),
        (False, client, to_client, to_server),
    ):
        context = asyncio.run(tls.Credentials(own).context(is_server=is_server))
        ends.append(context.wrap_bio(incoming, outgoing, server_side=is_server))
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    at_server, at_client = (tls.names(end.getpeercert()) for end in ends)
    return at_client, at_server


def test_certificates_of_the_maker_let_controller_and_nodes_talk(tmp_path: pathlib.Path) -> None:
    make(tmp_path, "n1", "n2")
    flags = options.Flags()
    words = ["--role=node", "--listen=:1", "--driver-name=d.example", "--node-id=n1"]
    words += ["--tls-cert=c", "--tls-key=k", "--tls-ca=a"]
    link = flags.options(flags.set.parse(words)).roles.link
    seen = handshake(files(tmp_path, "n2"), files(tmp_path, "controller"))
    assert [*map(set, seen)] == [{link.name_of("n2")}, {link.controller_name}]
    with pytest.raises(ssl.SSLError):  # a node's certificate makes no client, nor the other way
        handshake(files(tmp_path, "n2"), files(tmp_path, "n1"))
    assert (tmp_path / "n1.key").stat().st_mode & 0o077 == 0


def test_the_maker_keeps_its_authority_and_renews_the_rest(tmp_path: pathlib.Path) -> None:
    make(tmp_path, "n1")
    authority, node = (tmp_path / "ca.crt").read_text(), (tmp_path / "n1.crt").read_text()
    make(tmp_path, "n1")
    assert (tmp_path / "ca.crt").read_text() == authority
    assert (tmp_path / "n1.crt").read_text() != node
    handshake(files(tmp_path, "n1"), files(tmp_path, "controller"))
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.stem == "n1") == [
        ".crt",
        ".key",
    ]
