"""What is shown, on a terminal and off it."""

import io

from bitts_console import progress
from rich.console import Console


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain() -> Console:
    return Console(file=io.StringIO(), width=60, highlight=False)


def test_off_a_terminal_each_change_is_one_line() -> None:
    console = plain()
    with progress.Board(console) as board:
        board.phase("claims become volumes")
        board.state("claim", "a", "Pending")
        board.state("claim", "a", "Pending")
        board.state("claim", "a", "Bound", "pvc-1 " + "x" * 60)
        board.note("verified: all")
    lines = [line.partition(" s  ")[2] for line in shown(console).splitlines()]
    assert lines == [
        "claims become volumes",
        "  claim     a                      Pending",
        "  claim     a                      Bound        pvc-1 " + "x" * 60,
        "verified: all",
    ]


def test_on_a_terminal_the_table_is_live_and_notes_stay() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, highlight=False)
    with progress.Board(console) as board:
        board.phase("one")
        board.state("pod", "p", "Running")
        board.phase("two")
        board.note("verified: it")
    assert "verified: it" in shown(console)


def test_every_phase_is_timed_once() -> None:
    with progress.Board(plain()) as board:
        board.phase("one")
        board.phase("two")
    assert [phase.name for phase in board.phases] == ["one", "two"]
    assert all(phase.seconds is not None for phase in board.phases)
    console = plain()
    console.print(progress.timings(board.phases))
    assert [line.split()[0] for line in shown(console).splitlines()] == [
        "step",
        "one",
        "two",
        "together",
    ]


def test_markup_in_texts_is_not_interpreted() -> None:
    console = plain()
    with progress.Board(console) as board:
        board.note("event: [red]x[/red]")
    assert "[red]x[/red]" in shown(console)


def test_states_are_coloured_by_meaning() -> None:
    assert progress.style_of("Bound") == progress.GOOD
    assert progress.style_of("Failed") == progress.BAD
    assert progress.style_of("Pending") == progress.BUSY
