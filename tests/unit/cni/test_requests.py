"""What a plugin is handed, read or refused as Go does it."""

import contextlib
import json
from typing import Any

import pytest
from bitts.cni import args, attachments, capabilities, config, environment, errors, versions
from bitts.cni.documents import DocumentError, Fields
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from hypothesis import given, settings
from hypothesis import strategies as st

ADD = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/a",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
}


def refused(environ: dict[str, str]) -> CniError:
    with pytest.raises(CniError) as caught:
        environment.read(environ)
    return caught.value


def test_a_complete_environment_is_read() -> None:
    found = environment.read({**ADD, "CNI_NETNS_OVERRIDE": "TRUE"})
    assert found.command is Command.ADD
    assert found.path == ("/opt/cni/bin", "/usr/lib/cni")
    assert found.allows_own_netns


def test_missing_values_are_collected() -> None:
    error = refused({"CNI_COMMAND": "ADD", "CNI_PATH": "/x"})
    assert error.code == Code.INVALID_ENVIRONMENT
    assert str(error) == ("required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing")


def test_del_needs_no_netns_and_gc_no_attachment() -> None:
    environment.read({**ADD, "CNI_COMMAND": "DEL", "CNI_NETNS": ""})
    environment.read({"CNI_COMMAND": "GC", "CNI_PATH": "/x"})
    environment.read({"CNI_COMMAND": "VERSION"})


@pytest.mark.parametrize("command", ["GC", "STATUS", "VERSION"])
def test_what_is_about_no_attachment_has_none_of_its_names(command: str) -> None:
    odd = dict.fromkeys(("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"), "\x18\udc80")
    found = environment.read({**odd, "CNI_COMMAND": command, "CNI_PATH": "/x"})
    assert (found.container_id, found.netns, found.ifname) == ("", "", "")


@pytest.mark.parametrize(
    ("name", "value", "code", "text"),
    [
        ("CNI_CONTAINERID", "../x", 4, "invalid characters in containerID; ../x"),
        ("CNI_CONTAINERID", "a\nb", 4, "invalid characters in containerID; a\nb"),
        ("CNI_IFNAME", "a" * 16, 4, "interface name is too long"),
        ("CNI_IFNAME", "é" * 8, 4, "interface name is too long"),
        ("CNI_IFNAME", "..", 4, "interface name is . or .."),
        ("CNI_IFNAME", "a/b", 4, "interface name contains"),
        ("CNI_IFNAME", "a\u2003b", 4, "interface name contains"),
        ("CNI_COMMAND", "add", 4, "unknown CNI_COMMAND: add"),
        ("CNI_COMMAND", "", 4, "CNI_COMMAND"),
    ],
)
def test_odd_values_are_refused(name: str, value: str, code: int, text: str) -> None:
    error = refused({**ADD, name: value})
    assert error.code == code
    assert text in str(error)


def request(document: object, command: Command = Command.ADD) -> config.PluginConfig:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return config.read_request(text, command, versions.ALL)


@pytest.mark.parametrize(
    ("document", "command", "code", "text"),
    [
        (b"{", "ADD", 6, "error unmarshall network config"),
        ({"name": 1}, "ADD", 6, "name"),
        ({}, "ADD", 7, "missing network name"),
        ({"name": "a b"}, "ADD", 7, "invalid characters found in network name"),
        ({"name": "n", "cniVersion": "1.0"}, "ADD", 1, 'config is "1.0", plugin supports ["0.1.0"'),
        ({"name": "n", "cniVersion": "0.3.1"}, "CHECK", 1, "does not allow CHECK"),
        ({"name": "n", "cniVersion": "1.0.0"}, "GC", 1, "does not allow GC"),
        ({"name": "n", "cniVersion": "1.2.0"}, "STATUS", 1, "plugin version does not allow STATUS"),
        ({"name": "n", "prevResult": 3}, "ADD", 999, "prevResult"),
    ],
)
def test_configurations_are_refused_in_go_s_order(
    document: Any, command: str, code: int, text: str
) -> None:
    with pytest.raises(CniError) as caught:
        request(document, Command(command))
    assert caught.value.code == code
    assert text in str(caught.value)


def test_a_previous_result_takes_the_configuration_s_version() -> None:
    found = request({"name": "n", "cniVersion": "0.4.0", "prevResult": {"ips": []}})
    assert found.previous is not None
    assert found.previous.version == "0.4.0"
    assert request({"name": "n"}).version == "0.1.0"


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("", set(), {}),
        ("IgnoreUnknown=1;K8S_POD_NAME=x;IP=1.2.3.4", {"IP"}, {"IP": "1.2.3.4"}),
        ("IP=", {"IP"}, {"IP": ""}),
    ],
)
def test_args_that_are_known_are_read(text: str, known: set[str], expected: object) -> None:
    assert args.parse(text, known) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("IP=1.2.3.4;", 'invalid pair ""'),
        ("IgnoreUnknown=1;A=b=c", 'invalid pair "A=b=c"'),
        ("A=b;ip=1", 'unknown args \\["A=b" "ip=1"\\]'),
        ("IgnoreUnknown=yes", "error parsing"),
    ],
)
def test_args_are_as_strict_as_go(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        args.parse(text, {"IP"})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, None),
        ({"cni.dev/valid-attachments": None}, frozenset()),
        ({"cni.dev/attachments": []}, frozenset()),
        (
            {"cni.dev/attachments": [{"containerID": "c", "ifname": "e"}]},
            frozenset({attachments.Attachment("c", "e")}),
        ),
    ],
)
def test_no_list_of_attachments_is_no_information(document: Any, expected: object) -> None:
    assert attachments.valid(Fields(document)) == expected


def test_containerd_s_spelling_of_port_mappings_is_understood() -> None:
    runtime = Fields({"portMappings": [{"HostPort": 80, "ContainerPort": 8, "Protocol": "TCP"}]})
    assert capabilities.port_mappings(runtime) == (capabilities.PortMapping(80, 8, "tcp"),)


def test_errors_are_printed_and_read() -> None:
    error = CniError(Code.TRY_AGAIN_LATER, "later", "why")
    again = errors.decode(errors.encode(error, "1.0.0").encode())
    assert (again.code, str(again)) == (11, "later; why")


def test_a_list_hands_each_plugin_its_request() -> None:
    network = config.read_list(
        json.dumps(
            {
                "name": "n",
                "cniVersion": "0.4.0",
                "cniVersions": ["1.0.0"],
                "disableCheck": "True",
                "plugins": [{"type": "bridge", "name": "x", "capabilities": {"ips": True}}],
            }
        ).encode()
    )
    assert network.skips_check
    derived = config.derive(network, network.plugins[0], runtime={"ips": ["1"], "mac": "m"})
    assert derived == {
        "type": "bridge",
        "name": "n",
        "cniVersion": "1.0.0",
        "capabilities": {"ips": True},
        "runtimeConfig": {"ips": ["1"]},
    }


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"name": "n", "plugins": []},
        {"name": "n", "plugins": [{}]},
        {"name": "n", "loadOnlyInlinedPlugins": True},
        {"name": "n", "disableGC": "maybe", "plugins": [{"type": "x"}]},
        {"name": "n", "cniVersions": ["a"]},
    ],
)
def test_lists_with_mistakes_are_refused(document: Any) -> None:
    with pytest.raises(DocumentError):
        config.read_list(json.dumps(document).encode())


@settings(max_examples=200)
@given(st.binary(max_size=80), st.sampled_from(list(Command)))
def test_any_stdin_is_read_or_refused_in_words(text: bytes, command: Command) -> None:
    with contextlib.suppress(CniError):
        request(text, command)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(list(ADD)), st.text(max_size=20)))
def test_any_environment_is_read_or_refused(environ: dict[str, str]) -> None:
    with contextlib.suppress(CniError):
        environment.read(environ)
