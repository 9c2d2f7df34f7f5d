"""Rules in iptables' own chains, for the one thing that nftables cannot do for others.

What another table accepts, a chain of iptables may still drop; so where a chain must let our
packets through, a rule has to stand in that chain. Such rules are few, and laid once: every
change is a run of the ``iptables`` program.
"""

import errno
import functools
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bitts.net import nftables
from bitts.net.errors import NetlinkError
from bitts.net.sockets import Socket

_PROGRAMS = {4: "iptables", 6: "ip6tables"}
_FAMILIES = {4: nftables.IPV4, 6: nftables.IPV6}
_TABLE = "filter"
_VERDICTS = {"ACCEPT", "DROP", "RETURN"}
_WAIT = "10"
"""Seconds to wait for others who change rules."""

_TIMEOUT = 30.0
_EXISTS = "exists"
_BUSY = 4
"""Exit status when others hold the lock, or memory is short."""


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


def is_laid(version: int, rules: Sequence[Rule], channel: Socket, *, thoroughly: bool) -> bool:
    """Say whether rules stand, as far as that is to be seen. Blocks. Raises NetlinkError.

    Where the program keeps its rules in nftables the kernel is asked: for the chains that they
    lead to, and for any rule where they lead to none. Elsewhere the program is, if ``thoroughly``;
    where there is none there is nothing to miss.
    """
    try:
        if _uses_nftables(version):
            return _wanted(rules) <= _present(version, channel)
        words = ([rule.chain, *rule.words] for rule in rules if thoroughly)
        return not any(_run(_PROGRAMS[version], "-C", *each) for each in words)
    except FileNotFoundError:
        return True


def _wanted(rules: Iterable[Rule]) -> set[tuple[str, str]]:
    targets = ((rule.chain, rule.words[rule.words.index("-j") + 1]) for rule in rules)
    return {(chain, "" if to in _VERDICTS else to) for chain, to in targets}


def _present(version: int, channel: Socket) -> set[tuple[str, str]]:
    try:
        replies = channel.dump(nftables.rules(_TABLE, _FAMILIES[version]), "listing rules")
    except NetlinkError as error:
        if error.is_missing:
            return set()
        raise
    found = [nftables.decode_rule(each) for each in replies]
    return {(each.chain, each.target) for each in found if each.table == _TABLE}


@functools.lru_cache(len(_PROGRAMS))
def _uses_nftables(version: int) -> bool:
    return "nf_tables" in _called(_PROGRAMS[version], "-V").stdout


def rules(version: int, table: str, chain: str) -> tuple[str, ...]:
    """Return the rules of a chain as the program writes them (``-A CHAIN …``). Blocks.

    There are none where there is no such chain, or no such program. Raises NetlinkError.
    """
    program = _PROGRAMS[version]
    try:
        done = _called(program, "-w", _WAIT, "-t", table, "-S", chain)
    except FileNotFoundError:
        return ()
    if done.returncode == _BUSY:
        raise NetlinkError(errno.EBUSY, f"{program} cannot list {chain}", _said(done))
    lines = [] if done.returncode else done.stdout.splitlines()
    return tuple(each for each in lines if each.startswith("-A "))


def remove(version: int, table: str, rules: Sequence[str], chains: Sequence[str] = ()) -> None:
    """Remove rules, given as ``rules`` returns them, then whole chains, all or none. Blocks.

    Raises NetlinkError, also when one of them is not there (any more).
    """
    program = f"{_PROGRAMS[version]}-restore"
    lines = [f"*{table}", *(f"-D {each.removeprefix('-A ')}" for each in rules)]
    lines += [f"-F {each}" for each in chains] + [f"-X {each}" for each in chains] + ["COMMIT", ""]
    done = _called(program, "-w", _WAIT, "--noflush", text="\n".join(lines))
    if done.returncode:
        raise NetlinkError(errno.EINVAL, f"{program} cannot remove from {table}", _said(done))


def _run(program: str, *words: str) -> str:
    """Run the program; returns what it said when it failed, else nothing."""
    done = _called(program, "-w", _WAIT, "-t", _TABLE, *words)
    return _said(done) if done.returncode else ""


def _called(program: str, *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [program, *words], input=text,
            capture_output=True, text=True, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NetlinkError(110, f"{program} did not end within {_TIMEOUT:g} seconds") from None


def _said(done: "subprocess.CompletedProcess[str]") -> str:
    return " ".join(done.stderr.split()) or f"exit status {done.returncode}"
