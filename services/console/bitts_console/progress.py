"""What the user sees while something happens: a live table, or plain lines without a terminal.

Both show the same facts; without a terminal every change is one line with its time, so that a
log of a CI job reads like what a person would have seen.
"""

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

GOOD, BAD, BUSY, FAINT = "green", "bold red", "yellow", "dim"
FINAL_STATES = frozenset({"Bound", "Succeeded", "gone", "ready"})
BAD_STATES = frozenset({"Failed", "Lost"})


@dataclass(slots=True)
class Phase:
    """One part of the work; ``seconds`` is None while it lasts."""

    name: str
    started: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The state of one object."""

    kind: str
    name: str
    state: str
    detail: str


class Board:
    """Shows phases and the state of objects; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._rows: dict[tuple[str, str], Row] = {}
        self.phases: list[Phase] = []
        self._live = Live(console=console, auto_refresh=True, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finish_phase()
        self._live.stop()

    @property
    def elapsed(self) -> float:
        """Seconds since the board was made."""
        return time.monotonic() - self._began

    def phase(self, name: str) -> None:
        """Begin the next part of the work; the one before is over."""
        self._finish_phase()
        self.phases.append(Phase(name, time.monotonic()))
        self._show(name, "")

    def state(self, kind: str, name: str, state: str, detail: str = "") -> None:
        """Note the state of an object; nothing happens if it is the same as before."""
        row = Row(kind, name, state, detail)
        if self._rows.get((kind, name)) == row:
            return
        self._rows[kind, name] = row
        self._show(f"  {kind:<9} {name:<22} {state:<12} {detail}".rstrip(), style_of(state))

    def note(self, text: str, *, is_trouble: bool = False) -> None:
        """Tell something that must not disappear with the live table."""
        self._console.print(self._line(text, BAD if is_trouble else ""), soft_wrap=True)

    def _finish_phase(self) -> None:
        if self.phases and self.phases[-1].seconds is None:
            self.phases[-1].seconds = time.monotonic() - self.phases[-1].started

    def _line(self, text: str, style: str) -> Text:
        return Text.assemble((f"{self.elapsed:7.2f} s  ", FAINT), (text, style))

    def _show(self, text: str, style: str) -> None:
        if self._console.is_terminal:
            self._live.update(self._picture())
        else:
            self._console.print(self._line(text, style), soft_wrap=True)

    def _picture(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for row in self._rows.values():
            cells = (row.kind, row.name, Text(row.state, style_of(row.state)))
            table.add_row("", *cells, Text(row.detail, FAINT))
        done = [
            Text(f"✔ {phase.name}  {phase.seconds:.2f} s", GOOD)
            for phase in self.phases
            if phase.seconds is not None
        ]
        current = [Spinner("dots", p.name) for p in self.phases if p.seconds is None]
        return Group(*done, *current, table)


def style_of(state: str) -> str:
    """Return how a state is coloured."""
    if state in FINAL_STATES:
        return GOOD
    return BAD if state in BAD_STATES else BUSY


def timings(phases: list[Phase]) -> Table:
    """Return the summary: how long each part took."""
    table = Table(box=None, padding=(0, 2))
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for phase in phases:
        table.add_row(phase.name, f"{phase.seconds or 0.0:.2f}")
    table.add_row("together", f"{sum(phase.seconds or 0.0 for phase in phases):.2f}", style="bold")
    return table
