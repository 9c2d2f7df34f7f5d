"""Rules in iptables' own chains, for the one thing that nftables cannot do for others.

What another table accepts, a chain of iptables may still drop; so where a chain must let our
packets through, a rule has to stand in that chain. Such rules are few, and laid once: every
change is a run of the ``iptables`` program.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from bitts.net.errors import NetlinkError

_PROGRAMS = {4: "iptables", 6: "ip6tables"}
_WAIT = "10"
"""Seconds to wait for others who change rules."""

_TIMEOUT = 30.0
_EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a chain in the filter table; ``position`` counts from 1, 0 is the end."""

    chain: str
    words: tuple[str, ...]
    position: int = 0


def ensure(version: int, chains: Sequence[str], rules: Sequence[Rule]) -> None:
    """Make chains and rules that are missing. Blocks. Raises NetlinkError with the program's words.

    Where the program is not installed nobody uses its chains, and nothing is done.
    """
    program = _PROGRAMS[version]
    try:
        for chain in chains:
            made = _run(program, "-N", chain)
            if made and _EXISTS not in made.lower():
                raise NetlinkError(22, f"{program} cannot make chain {chain}", made)
        for rule in rules:
            if not _run(program, "-C", rule.chain, *rule.words):
                continue
            place = ("-I", rule.chain, str(rule.position)) if rule.position else ("-A", rule.chain)
            refused = _run(program, *place, *rule.words)
            if refused:
                raise NetlinkError(22, f"{program} cannot add a rule to {rule.chain}", refused)
    except FileNotFoundError:
        return


def _run(program: str, *words: str) -> str:
    """Run the program; returns what it said when it failed, else nothing."""
    try:
        done = subprocess.run(
            [program, "-w", _WAIT, "-t", "filter", *words],
            capture_output=True, text=True, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NetlinkError(110, f"{program} did not end within {_TIMEOUT:g} seconds") from None
    if not done.returncode:
        return ""
    return " ".join(done.stderr.split()) or f"exit status {done.returncode}"
