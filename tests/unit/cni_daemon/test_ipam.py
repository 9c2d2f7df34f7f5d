"""host-local and static: what is asked for, what is given, and what is refused in their words."""

import pathlib
from typing import Any

import pytest
from bitts.cni.attachments import Attachment
from bitts.cni.errors import CniError
from bitts.cni.results import Result
from cni_daemon.ipam import host_local, static
from cni_daemon.ipam.stores import Stores
from support.cnicalls import call

SMALL = [[{"subnet": "10.0.0.0/29"}]]


class Site:
    """A folder of addresses, and host-local asked to work in it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.stores = Stores()

    def ask(self, *, container: str = "c1", args: str = "", **keys: Any) -> Result:
        top: dict[str, Any] = {
            key: keys.pop(key) for key in ("runtimeConfig", "cniVersion") if key in keys
        }
        if "args_" in keys:
            top["args"] = {"cni": keys.pop("args_")}
        ipam = {"type": "host-local", "dataDir": str(self.folder), **keys}
        made = call({"type": "bridge", "ipam": ipam, **top}, args=args, container=container)
        options = host_local.parse(made.config, made)
        return host_local.allocate(options, self.stores, made)

    @property
    def taken(self) -> set[str]:
        folder = self.folder / "net"
        names = {each.name for each in folder.iterdir()} if folder.exists() else set()
        return {name for name in names if name != "lock" and not name.startswith("last")}


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    return Site(tmp_path)


def addresses(result: Result) -> list[str]:
    return [str(ip.address) for ip in result.ips]


def test_addresses_go_round_and_are_not_given_again_at_once(site: Site) -> None:
    given = [addresses(site.ask(container=f"c{n}", ranges=SMALL))[0] for n in range(3)]
    assert given == ["10.0.0.2/29", "10.0.0.3/29", "10.0.0.4/29"]
    site.stores.at(str(site.folder / "net")).release("c1", "eth0")
    assert addresses(site.ask(container="c9", ranges=SMALL)) == ["10.0.0.5/29"]


def test_an_exhausted_set_says_which(site: Site) -> None:
    for number in range(5):
        site.ask(container=f"c{number}", ranges=SMALL)
    with pytest.raises(CniError) as caught:
        site.ask(container="more", ranges=SMALL)
    assert caught.value.message == (
        "failed to allocate for range 0: no IP addresses available in range set: 10.0.0.1-10.0.0.6"
    )
    made = call({"ipam": {"dataDir": str(site.folder), "ranges": SMALL}})
    with pytest.raises(CniError, match="no IP addresses available"):
        host_local.ready(host_local.parse(made.config, made), site.stores)


def test_a_second_address_from_one_set_is_refused_and_the_first_stays(site: Site) -> None:
    site.ask(ranges=SMALL)
    with pytest.raises(CniError, match="duplicate allocation is not allowed"):
        site.ask(ranges=SMALL)
    assert site.taken == {"10.0.0.2"}


def test_sets_give_all_or_nothing(site: Site) -> None:
    full = [[{"subnet": "10.1.0.0/30"}]]
    site.ask(container="x", ranges=full)
    with pytest.raises(CniError, match="failed to allocate for range 1"):
        site.ask(ranges=[*SMALL, *full])
    assert site.taken == {"10.1.0.2"}
    assert len(addresses(site.ask(ranges=[*SMALL, [{"subnet": "fd00::/64"}]]))) == 2


@pytest.mark.parametrize(
    "keys",
    [
        {"args": "IP=10.0.0.5"},
        {"args": "IP=10.0.0.5/24;IgnoreUnknown=1;K8S_POD_NAME=x"},
        {"args_": {"ips": ["10.0.0.5"]}},
        {"runtimeConfig": {"ips": ["10.0.0.5/8"]}},
    ],
)
def test_a_particular_address_may_be_asked_for(site: Site, keys: dict[str, Any]) -> None:
    assert addresses(site.ask(ranges=SMALL, **keys)) == ["10.0.0.5/29"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("10.0.0.1", "requested ip 10.0.0.1 is subnet's gateway"),
        ("10.0.0.2", "requested IP address 10.0.0.2 is not available in range set"),
        ("10.9.9.9", "failed to allocate all requested IPs: 10.9.9.9"),
    ],
)
def test_a_particular_address_may_be_refused(site: Site, wanted: str, message: str) -> None:
    site.ask(container="other", ranges=SMALL)
    with pytest.raises(CniError) as caught:
        site.ask(ranges=SMALL, args=f"IP={wanted}")
    assert message in caught.value.message
    assert site.taken == {"10.0.0.2"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "no IP ranges specified"),
        ({"ranges": [{"subnet": "10.0.0.0/24"}]}, "each range set is an array"),
        ({"ranges": [[{"subnet": 7}]]}, "cannot unmarshal number into a string"),
        ({"ranges": [[{"subnet": "10.0.0.0/33"}]]}, "invalid CIDR address"),
        ({"subnet": "10.0.0.0/31"}, "invalid range set 0: Network 10.0.0.0/31 too small"),
        ({"subnet": "10.0.0.0/24", "args": "X=1"}, 'unknown args ["X=1"]'),
        (
            {"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.1.0.0/24"}]],
             "cniVersion": "0.2.0"},
            "does not support more than 1 address per family",
        ),
    ],
)  # fmt: skip
def test_configurations_with_mistakes_are_refused(
    site: Site, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(CniError) as caught:
        site.ask(**keys)
    assert message in caught.value.message


def test_the_runtime_s_ranges_come_first_then_the_old_one(site: Site) -> None:
    result = site.ask(
        subnet="10.2.0.0/24",
        ranges=[[{"subnet": "10.3.0.0/24"}]],
        runtimeConfig={"ipRanges": [[{"subnet": "10.1.0.0/24"}]]},
    )
    assert addresses(result) == ["10.1.0.2/24", "10.2.0.2/24", "10.3.0.2/24"]


def test_resolver_settings_are_read_from_a_file(site: Site) -> None:
    path = site.folder / "resolv.conf"
    path.write_text(
        "# x\nnameserver 192.0.2.1\nsearch a b\ndomain d\noptions ndots:5 # y\nsortlist z"
    )
    dns = site.ask(ranges=SMALL, resolvConf=str(path)).dns
    assert (dns.nameservers, dns.search, dns.domain, dns.options) == (
        ("192.0.2.1",), ("a", "b"), "d", ("ndots:5",),
    )  # fmt: skip
    with pytest.raises(CniError, match="resolvConf"):
        site.ask(container="c2", ranges=SMALL, resolvConf=str(site.folder / "none"))


def test_collecting_knows_reservations_of_old_and_needs_no_ranges(site: Site) -> None:
    site.ask(ranges=SMALL)
    (site.folder / "net" / "10.0.0.4").write_bytes(b"old")
    (site.folder / "net" / "10.0.0.5").write_bytes(b"stale")
    made = call({"ipam": {"dataDir": str(site.folder)}})
    valid = frozenset({Attachment("c1", "eth0"), Attachment("old", "eth0")})
    assert host_local.collect(site.stores, made, valid) == 1
    assert site.taken == {"10.0.0.2", "10.0.0.4"}


def test_a_check_finds_the_reservation(site: Site) -> None:
    made = call({"ipam": {"dataDir": str(site.folder), "ranges": SMALL}})
    options = host_local.parse(made.config, made)
    with pytest.raises(CniError, match="Failed to find address added by container c1"):
        host_local.check(options, site.stores, made)
    site.ask(ranges=SMALL)
    host_local.check(options, site.stores, made)


ONE = {"addresses": [{"address": "10.0.0.9/24", "gateway": "10.0.0.1"}]}


@pytest.mark.parametrize(
    ("ipam", "top", "args", "expected"),
    [
        (ONE, {}, "", [("10.0.0.9/24", "10.0.0.1")]),
        (
            ONE, {}, "IP=10.1.0.9/24,10.2.0.9/24;GATEWAY=10.2.0.1",
            [("10.0.0.9/24", "10.0.0.1"), ("10.1.0.9/24", "None"), ("10.2.0.9/24", "10.2.0.1")],
        ),
        (ONE, {"args": {"cni": {"ips": ["10.3.0.9/24"]}}}, "", [("10.3.0.9/24", "None")]),
        (
            ONE,
            {"args": {"cni": {"ips": ["10.3.0.9/24"]}}, "runtimeConfig": {"ips": ["10.4.0.9/8"]}},
            "", [("10.4.0.9/8", "None")],
        ),
        ({}, {}, "", []),
    ],
)  # fmt: skip
def test_static_addresses_by_their_sources(
    ipam: dict[str, Any], top: dict[str, Any], args: str, expected: list[tuple[str, str]]
) -> None:
    made = call({"ipam": {"type": "static", **ipam}, **top}, args=args)
    found = static.allocate(static.parse(made.config, made), Stores(), made)
    assert [(str(ip.address), str(ip.gateway)) for ip in found.ips] == expected


@pytest.mark.parametrize(
    ("ipam", "top", "args", "message"),
    [
        ({"addresses": [{"address": "10.0.0.9"}]}, {}, "", "the 'address' field is expected"),
        (
            {},
            {},
            "IP=10.0.0.9",
            "the 'ip' field is expected to be in CIDR notation, got: '10.0.0.9'",
        ),
        ({}, {"runtimeConfig": {"ips": ["x"]}}, "", "an entry in the 'ips' field is NOT in CIDR"),
    ],
)
def test_static_needs_prefixes(
    ipam: dict[str, Any], top: dict[str, Any], args: str, message: str
) -> None:
    made = call({"ipam": {"type": "static", **ipam}, **top}, args=args)
    with pytest.raises(CniError, match=message):
        static.parse(made.config, made)


def test_static_checks_gateways() -> None:
    previous = {"ips": [{"address": "10.0.0.9/24", "gateway": "10.0.0.7"}]}
    made = call({"ipam": {"type": "static", **ONE}, "prevResult": previous}, command="CHECK")
    with pytest.raises(CniError, match="Failed to match addr"):
        static.check(static.parse(made.config, made), Stores(), made)
