"""Many pods at once: one program each, or the whole list with its results handed on.

A pod's list is walked by a process of the harness's own, as a runtime does it, so that pods
overlap and the plugins of one pod do not.
"""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.cnichain import Chain

Ask = Callable[[Sequence[str], int], Sequence[tuple[str, str]]]


def together(ask: Ask, pods: Sequence[Sequence[str]]) -> float:
    """Run the lines of every pod, pods side by side; returns milliseconds in all."""
    lines = [f"B {len(pods)}"]
    for each in pods:
        lines += [f"N {len(each)}", *each]
    answers = ask(lines, len(pods) + 1)
    failed = sum(1 for status, _ in answers[:-1] if status != "0")
    if failed:
        raise AssertionError(f"{failed} of {len(pods)} failed")
    return int(answers[-1][1]) / 1e6


def chains(ask: Ask, chain: Chain, pods: Sequence[str]) -> tuple[float, float]:
    """Attach and detach every pod at once; returns both wall times."""
    made = [_List(chain, number, pod) for number, pod in enumerate(pods)]
    walls = [together(ask, [each.adds() for each in made])]
    walls.append(together(ask, [each.deletes() for each in made]))
    return walls[0], walls[1]


class _List:
    """One pod's list: its lines for the harness, with files of its own."""

    def __init__(self, chain: Chain, number: int, pod: str) -> None:
        self._chain = chain
        self._number = number
        self._pod = pod
        self._configs = chain.configs(number)

    def adds(self) -> list[str]:
        """Return the lines of an ADD: all but the first get the result of the one before."""
        lines: list[str] = []
        for step, config in enumerate(self._configs):
            text = json.dumps(config)
            if step:  # the harness closes it with the result
                text = text[:-1] + ', "prevResult": '
            self._file(step).write_text(text)
            lines.append(self._line("P" if step else "R", "ADD", step, config))
        return lines

    def deletes(self) -> list[str]:
        """Return the lines of a DEL, with the result of the last ADD."""
        result = json.loads(self._output(len(self._configs) - 1).read_text())
        lines: list[str] = []
        for step, config in reversed(list(enumerate(self._configs))):
            self._file(step).write_text(json.dumps({**config, "prevResult": result}))
            lines.append(self._line("R", "DEL", step, config))
        return lines

    def _line(self, kind: str, command: str, step: int, config: Mapping[str, Any]) -> str:
        return self._chain.line(
            kind, command, config, self._number, self._pod, self._file(step), self._output(step)
        )

    def _file(self, step: int) -> pathlib.Path:
        return self._chain.folder / f"{self._chain.name}.{self._number}.{step}.in"

    def _output(self, step: int) -> pathlib.Path:
        return self._chain.folder / f"{self._chain.name}.{self._number}.{step}.out"
