"""Rules of policy routing: what is asked of the kernel is what is read from it."""

import ipaddress

from bitts.net import rules, wire
from bitts.net.rules import Rule
from bitts.net.wire import Reply
from hypothesis import given
from hypothesis import strategies as st

tables = st.integers(1, 2**32 - 1)
priorities = st.integers(0, 2**32 - 1)


def read(rule: Rule, extra: bytes = b"") -> Rule | None:
    return rules.decode(Reply(rules.NEW, 0, 1, memoryview(rules.add(rule).body + extra)))


@given(st.ip_addresses(), tables, priorities, st.data())
def test_a_rule_comes_back(
    source: ipaddress.IPv4Address | ipaddress.IPv6Address,
    table: int,
    priority: int,
    data: st.DataObject,
) -> None:
    length = data.draw(st.none() | st.integers(0, source.max_prefixlen - 1))
    rule = Rule(source.version, table, source, length, priority)
    assert read(rule) == rule


def test_a_rule_that_asks_for_more_is_narrow() -> None:
    rule = Rule(4, 99, ipaddress.ip_address("10.0.0.1"))
    off, mark = wire.u32(14, 0xFFFFFFFF), wire.u32(10, 7)
    for extra, is_narrow in ((b"", False), (off, False), (wire.u32(14, 8), True), (mark, True)):
        found = read(rule, extra)
        assert found is not None
        assert found.is_narrow == is_narrow


def test_a_rule_about_anything_else_has_no_source() -> None:
    header = bytes([2, 0, 0, 0, 254, 0, 0, 1]) + bytes(4)
    assert rules.decode(Reply(rules.NEW, 0, 1, memoryview(header))) == Rule(4, 254)
