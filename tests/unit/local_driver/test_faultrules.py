"""Faults as text, and which calls meet them."""

import random

import pytest
from bitts.rpc.codes import Code
from hypothesis import given
from hypothesis import strategies as st
from local_driver import faultrules, faultsocket
from local_driver.faultrules import FaultSet, Kind, Rule
from local_driver.latencies import Normal, Percentiles, Uniform
from local_driver.steps import Step

METHODS = ("CreateVolume", "DeleteVolume", "NodeStageVolume", "Probe")


def parse(text: str) -> Rule:
    return faultrules.parse(text, METHODS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CreateVolume:latency=50ms", {"kind": Kind.LATENCY, "latency": Uniform(0.05, 0.05)}),
        ("*:latency=10ms..1s", {"rpc": "*", "kind": Kind.LATENCY, "latency": Uniform(0.01, 1.0)}),
        (
            "CreateVolume:latency=p50:5ms,p99:200ms@0.5,times=3",
            {"latency": Percentiles((0.5, 0.99), (0.005, 0.2)), "rate": 0.5, "times": 3},
        ),
        ("CreateVolume:latency=normal:1s/1ms,name=p", {"latency": Normal(1.0, 0.001), "name": "p"}),
        ("CreateVolume:code=Unavailable", {"kind": Kind.CODE, "code": Code.UNAVAILABLE}),
        (
            "CreateVolume:code=RESOURCE_EXHAUSTED@0.25",
            {"code": Code.RESOURCE_EXHAUSTED, "rate": 0.25},
        ),
        ("CreateVolume:lost,times=2", {"kind": Kind.LOST, "when": "after", "times": 2}),
        ("CreateVolume:lost,name=pvc-1", {"name": "pvc-1"}),
        ("DeleteVolume:hang", {"rpc": "DeleteVolume", "kind": Kind.HANG, "when": "before"}),
        ("DeleteVolume:hang=after", {"rpc": "DeleteVolume", "when": "after"}),
        ("CreateVolume:crash=before", {"kind": Kind.CRASH, "when": "before"}),
        ("CreateVolume:crash=document-written", {"kind": Kind.CRASH, "when": "document-written"}),
        ("CreateVolume:missing-id", {"kind": Kind.MISSING_ID, "when": "after"}),
        ("Probe:empty", {"rpc": "Probe", "kind": Kind.EMPTY}),
    ],
)
def test_rules_are_read(text: str, expected: dict[str, object]) -> None:
    rule = parse(text)
    assert rule.text == text
    wanted = {"rpc": "CreateVolume", "rate": 1.0, "times": 0, **expected}
    assert {name: getattr(rule, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CreateVolume", "write RPC:fault"),
        ("CreateVolum:lost", "did you mean CreateVolume"),
        ("CreateVolume:explode", "known are latency, code"),
        ("CreateVolume:code=Teapot", "Unavailable"),
        ("CreateVolume:latency=soon", "soon"),
        ("CreateVolume:lost@2", "between 0 and 1"),
        ("CreateVolume:lost@often", "often"),
        ("CreateVolume:lost,until=noon", "times=N and name=text"),
        ("DeleteVolume:missing-id", "answer of CreateVolume"),
        ("CreateVolume:crash=staged", "content-made"),
        ("CreateVolume:empty=yes", "takes no value"),
    ],
)
def test_a_wrong_rule_says_what_is_possible(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


@given(st.text(max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parse(f"CreateVolume:{text}")
    except ValueError:
        return


def test_rates_times_and_names_select_calls() -> None:
    rules = FaultSet(
        [parse("CreateVolume:code=Internal@0.5"), parse("CreateVolume:lost,times=2,name=a")],
        random.Random(1),
    )
    fired = [tuple(rule.kind for rule in rules.draw("CreateVolume", name)) for name in "ab" * 200]
    assert 130 < sum(Kind.CODE in kinds for kinds in fired) < 270
    assert [index for index, kinds in enumerate(fired) if Kind.LOST in kinds] == [0, 2]
    assert [rule.kind for rule in rules.rules] == [Kind.CODE]
    assert rules.draw("DeleteVolume", "a") == []
    assert rules.calls == {"CreateVolume": 400, "DeleteVolume": 1}


def test_steps_kill_only_where_a_rule_says_so() -> None:
    rules = FaultSet([parse("CreateVolume:crash=document-written,times=1,name=v")])
    assert rules.draw("CreateVolume", "v") == []
    assert not rules.kills_at(Step.CONTENT_MADE, "CreateVolume", "v")
    assert not rules.kills_at(Step.DOCUMENT_WRITTEN, "NodeStageVolume", "v")
    assert not rules.kills_at(Step.DOCUMENT_WRITTEN, "CreateVolume", "w")
    assert rules.kills_at(Step.DOCUMENT_WRITTEN, "CreateVolume", "v")
    assert not rules.kills_at(Step.DOCUMENT_WRITTEN, "CreateVolume", "v")


def test_latency_is_drawn_from_its_range() -> None:
    rules = FaultSet(dice=random.Random(1))
    drawn = [rules.latency(parse("*:latency=1s..2s")) for _ in range(50)]
    assert min(drawn) >= 1
    assert max(drawn) <= 2
    assert max(drawn) - min(drawn) > 0.5


def test_the_socket_commands() -> None:
    rules = FaultSet()
    assert faultsocket.obey("add CreateVolume:lost\n", rules, METHODS) == ["ok"]
    assert faultsocket.obey("add Probe:hang", rules, METHODS) == ["ok"]
    assert faultsocket.obey("list", rules, METHODS) == ["CreateVolume:lost", "Probe:hang", "ok"]
    rules.draw("CreateVolume", "v")
    assert faultsocket.obey("counts", rules, METHODS) == ["CreateVolume 1", "ok"]
    assert faultsocket.obey("clear CreateVolume", rules, METHODS) == ["ok"]
    assert faultsocket.obey("list", rules, METHODS) == ["Probe:hang", "ok"]
    assert faultsocket.obey("clear", rules, METHODS) == ["ok"]
    assert faultsocket.obey("list", rules, METHODS) == ["ok"]
    assert faultsocket.obey("add nonsense", rules, METHODS)[0].startswith("error: ")
    assert "known are add" in faultsocket.obey("explode", rules, METHODS)[0]
