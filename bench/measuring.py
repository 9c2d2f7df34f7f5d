"""What a process costs, read from the kernel, and how a result is printed."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

MIB = 1 << 20


def cpu_seconds(pid: int) -> float:
    """Return user plus system time of one process so far, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> tuple[float, float]:
    """Return resident and anonymous memory of one process in MB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    sizes = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    resident, anonymous = (int(sizes[key].split()[0]) / 1024 for key in ("VmRSS", "RssAnon"))
    return round(resident, 1), round(anonymous, 1)


def print_result(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print one table, turned on its side: a line per figure, a column per run."""
    table = Table(title=title)
    names = list(rows[0])
    table.add_column(names[0])
    for row in rows:
        table.add_column(str(row[names[0]]), justify="right")
    for name in names[1:]:
        table.add_row(name, *(str(row[name]) for row in rows))
    Console(width=200).print(table)


def print_summary(summary: Mapping[str, object]) -> None:
    """Print the result for programs: one JSON object, the last line."""
    print(json.dumps(summary))
