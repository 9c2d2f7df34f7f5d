"""Results across the versions, field by field."""

import pytest
from bitts.cni import conversion, documents, results, versions
from bitts.cni.conversion import ConversionError
from hypothesis import given, settings
from hypothesis import strategies as st

RICH = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {"name": "cni0", "mac": "02:00:00:00:00:01", "mtu": 1500},
        {"name": "eth0", "sandbox": "/run/netns/a", "socketPath": "/s", "pciID": "0000:1:2.3"},
    ],
    "ips": [
        {"interface": 1, "address": "10.1.0.5/16", "gateway": "10.1.0.1"},
        {"interface": 0, "address": "fd00::5/64"},
    ],
    "routes": [
        {"dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1400, "table": 0, "scope": 0},
        {"dst": "fd01::/64", "priority": 7},
    ],
    "dns": {"nameservers": ["1.1.1.1"], "search": ["a.b"]},
}


def converted(document: object, version: str) -> dict[str, object]:
    return results.encode(conversion.convert(results.decode(document, ""), version))


def test_the_current_shape_survives_unchanged() -> None:
    assert converted(RICH, "1.1.0") == RICH
    assert converted(RICH, "1.0.0") == {**RICH, "cniVersion": "1.0.0"}


def test_middle_versions_get_address_versions_and_lose_new_interface_fields() -> None:
    document = converted(RICH, "0.4.0")
    assert document["interfaces"] == [
        {"name": "cni0", "mac": "02:00:00:00:00:01"},
        {"name": "eth0", "sandbox": "/run/netns/a"},
    ]
    assert document["ips"] == [
        {"version": "4", "interface": 1, "address": "10.1.0.5/16", "gateway": "10.1.0.1"},
        {"version": "6", "interface": 0, "address": "fd00::5/64"},
    ]
    assert document["routes"] == RICH["routes"]


def test_the_oldest_versions_keep_one_address_of_each_family() -> None:
    assert converted(RICH, "0.2.0") == {
        "cniVersion": "0.2.0",
        "ip4": {
            "ip": "10.1.0.5/16",
            "gateway": "10.1.0.1",
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}],
        },
        "ip6": {"ip": "fd00::5/64", "routes": [{"dst": "fd01::/64"}]},
        "dns": RICH["dns"],
    }


def test_the_oldest_versions_need_an_address() -> None:
    bare = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}]}
    with pytest.raises(ConversionError, match="no valid IP addresses"):
        converted(bare, "0.2.0")


def test_an_address_without_version_is_lost_on_the_way_to_the_oldest() -> None:
    middle = {
        "cniVersion": "0.3.1",
        "ips": [{"address": "10.0.0.1/8"}, {"version": "4", "address": "10.0.0.2/8"}],
    }
    assert converted(middle, "0.1.0")["ip4"] == {"ip": "10.0.0.2/8"}
    assert len(converted(middle, "1.0.0")["ips"]) == 2  # type: ignore[arg-type]


def test_the_oldest_become_lists_with_ipv4_first() -> None:
    flat = {
        "ip6": {"ip": "fd00::2/64", "gateway": "fd00::1"},
        "ip4": {"ip": "10.0.0.2/8", "routes": [{"dst": "1.0.0.0/8", "mtu": 9}]},
    }
    assert converted(flat, "1.0.0") == {
        "cniVersion": "1.0.0",
        "ips": [{"address": "10.0.0.2/8"}, {"address": "fd00::2/64", "gateway": "fd00::1"}],
        "routes": [{"dst": "1.0.0.0/8", "mtu": 9}],
    }
    assert converted(flat, "0.3.0")["dns"] == {}


def test_empty_lists_are_left_out_and_explicit_zeros_are_kept() -> None:
    document = converted({"cniVersion": "1.0.0", "routes": [{"dst": "::/0", "table": 0}]}, "1.0.0")
    assert document == {"cniVersion": "1.0.0", "routes": [{"dst": "::/0", "table": 0}]}


@pytest.mark.parametrize("version", ["2.0.0", "1.0", "x"])
def test_an_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(ConversionError, match="no converter"):
        converted(RICH, version)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.1.2.3/16", "10.1.2.3/16"),
        ("::ffff:10.0.0.1/104", "10.0.0.1/8"),
        ("fd00::1/64", "fd00::1/64"),
    ],
)
def test_addresses_keep_host_bits(text: str, expected: object) -> None:
    assert str(results.parse_interface(text)) == expected


@pytest.mark.parametrize("text", ["10.0.0.1", "010.0.0.1/8", "10.0.0.1/33", "fe80::1%e/64", "1/2"])
def test_what_is_no_cidr_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid CIDR"):
        results.parse_interface(text)


_ips = st.ip_addresses().filter(lambda ip: ip.version == 4 or ip.ipv4_mapped is None)


@st.composite
def documents_of_any_version(draw: st.DrawFn) -> results.Result:
    ips = tuple(
        results.Ip(results.parse_interface(f"{ip}/24"), draw(st.none() | st.just(ip)))
        for ip in draw(st.lists(_ips, max_size=3))
    )
    routes = tuple(
        results.Route(results.parse_interface(f"{ip}/16"), table=draw(st.none() | st.just(0)))
        for ip in draw(st.lists(_ips, max_size=3))
    )
    names = draw(st.lists(st.sampled_from(["a", "b"]), max_size=2))
    return results.Result("1.1.0", tuple(results.Interface(n) for n in names), ips, routes)


@settings(max_examples=150)
@given(documents_of_any_version(), st.sampled_from(versions.ALL), st.sampled_from(versions.ALL))
def test_what_is_converted_can_be_read_again(
    result: results.Result, first: str, second: str
) -> None:
    try:
        there = conversion.convert(result, first)
    except ConversionError:
        assert not result.ips
        return
    text = documents.render(results.encode(there))
    again = results.decode(documents.parse(text), "")
    assert results.encode(again) == results.encode(there)
    if versions.family(first) is not versions.Family.FLAT:
        try:
            straight = conversion.convert(result, second)
        except ConversionError:
            return
        assert results.encode(conversion.convert(again, second)) == results.encode(straight)
