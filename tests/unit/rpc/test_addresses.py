import pytest
from bitts.rpc import addresses


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/csi/csi.sock", "/csi/csi.sock"),
        ("unix:///csi/csi.sock", "/csi/csi.sock"),
        ("unix:/csi/csi.sock", "/csi/csi.sock"),
        ("unix:csi.sock", "csi.sock"),
    ],
)
def test_every_way_to_write_a_unix_socket_is_read(address: str, path: str) -> None:
    assert addresses.socket_path(address) == path


@pytest.mark.parametrize("address", ["", "localhost:50051", "dns:///x:1", "tcp://1.2.3.4:5"])
def test_what_is_no_unix_socket_is_refused_with_advice(address: str) -> None:
    with pytest.raises(ValueError, match=r"write /path/to.sock or unix:///path/to.sock"):
        addresses.socket_path(address)


def test_an_address_without_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="has no path"):
        addresses.socket_path("unix://")


def test_a_path_longer_than_the_kernel_takes_is_refused_early() -> None:
    assert addresses.socket_path("/" + "x" * 106)
    with pytest.raises(ValueError, match="has 109 bytes, Linux allows 107"):
        addresses.socket_path("/" + "ü" * 54)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("node-1:9809", "node-1", 9809),
        (":9809", "", 9809),
        ("[fd00::1]:0", "fd00::1", 0),
        ("10.0.0.7:65535", "10.0.0.7", 65535),
    ],
)
def test_hosts_with_ports_are_read_and_written(text: str, host: str, port: int) -> None:
    assert addresses.split_host_port(text) == (host, port)
    assert addresses.host_port(host, port) == text


@pytest.mark.parametrize(
    "text",
    ["", "node-1", "node-1:", "node-1:x", "fd00::1:80", "[node]:80", "a:65536", "a:-1", "a:٣"],
)
def test_what_is_no_host_with_a_port_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="write host:port") as caught:
        addresses.split_host_port(text)
    assert repr(text) in str(caught.value)
