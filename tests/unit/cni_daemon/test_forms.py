"""Forms: requests that differ in the container alone are alike, and nothing else is."""

import pytest
from cni_daemon import forms
from cni_daemon.forms import Order
from cni_daemon.protocol import Frame
from hypothesis import given
from hypothesis import strategies as st

STDIN = b'{"name": "net", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "x": 1}]}}'


def read(stdin: bytes = STDIN, **variables: str) -> Order | None:
    environment = {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c0ffee", "CNI_NETNS": "/run/netns/p",
        "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin", **variables,
    }  # fmt: skip
    return forms.read(Frame("ab" * 16, "bridge", environment, stdin))


def known(stdin: bytes = STDIN, **variables: str) -> Order:
    found = read(stdin, **variables)
    assert found is not None
    return found


def test_containers_of_one_network_are_alike_and_so_are_their_ports() -> None:
    one = known()
    other = known(
        STDIN.replace(b"8080", b"9"), CNI_CONTAINERID="abcdef", CNI_NETNS="/run/netns/q",
        CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=abcdef",
    )  # fmt: skip
    assert one.form == other.form
    assert (one.ports, other.ports) == ((8080,), (9,))
    assert (other.container_id, other.netns) == ("abcdef", "/run/netns/q")


@pytest.mark.parametrize(
    ("stdin", "variables"),
    [
        (STDIN, {"CNI_CONTAINERID": "longer-id"}),
        (STDIN, {"CNI_IFNAME": "eth1"}),
        (STDIN.replace(b"net", b"ten"), {}),
        (STDIN.replace(b"8080", b"0080"), {}),
        (STDIN.replace(b"8080", b"8080.5"), {}),
        (STDIN.replace(b"8080", b'"8080"'), {}),
    ],
    ids=["length", "interface", "network", "zeros", "fraction", "text"],
)
def test_others_are_not_alike(stdin: bytes, variables: dict[str, str]) -> None:
    assert known(stdin, **variables).form != known().form


@pytest.mark.parametrize(
    ("stdin", "variables"),
    [
        (STDIN, {"CNI_COMMAND": "DEL"}),
        (STDIN, {"CNI_ARGS": "IgnoreUnknown=1;MAC=02:00:00:00:00:01"}),
        (STDIN, {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=a;IP=10.0.0.9"}),
        (STDIN, {"CNI_ARGS": "K8S_POD_NAME=a"}),
        (STDIN, {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=a;IgnoreUnknown=0"}),
        (STDIN, {"CNI_ARGS": "IgnoreUnknown=1;odd"}),
        (STDIN, {"CNI_NETNS_OVERRIDE": "1"}),
        (STDIN, {"CNI_PATH": ""}),
        (STDIN, {"CNI_CONTAINERID": "c"}),
        (STDIN, {"CNI_CONTAINERID": "c5a"}),
        (STDIN, {"CNI_CONTAINERID": "../etc"}),
        (STDIN, {"CNI_CONTAINERID": 'c"'}),
        (STDIN, {"CNI_NETNS": '/run/netns/"'}),
        (STDIN, {"CNI_NETNS": "/run/netns/p\n"}),
        (STDIN, {"CNI_NETNS": ""}),
        (STDIN.replace(b"8080", b"65536"), {}),
        (STDIN + b' {"hostPort": 8080}', {}),
        (b" " * 20_000, {}),
    ],
)
def test_what_is_not_plain_has_no_form(stdin: bytes, variables: dict[str, str]) -> None:
    assert read(stdin, **variables) is None


@given(st.integers(1, 65535))
def test_a_request_is_its_form_with_what_is_its_own(port: int) -> None:
    order = known(STDIN.replace(b"8080", str(port).encode()))
    frame = order.form.frame(order.container_id, order.netns, order.nonce, (4711,))
    assert frame.stdin == STDIN.replace(b"8080", b"4711")
    assert forms.read(frame) == Order(
        order.form, order.container_id, order.netns, order.nonce, (4711,)
    )
