"""What is going on inside a process, as plain text for ``/debug/bitts/``."""

import traceback
from asyncio import all_tasks

from bitts.core.ledger import Ledger
from bitts.core.workqueue import WorkQueue

PATH = "/debug/bitts"

_LONGEST_LIST = 1_000  # objects in one dump


def tasks() -> str:
    """Describe every task: its name and where it waits."""
    texts = []
    for task in sorted(all_tasks(), key=lambda task: task.get_name()):
        frames = [
            f"  {name}:{line} {function}\n"
            for frame in task.get_stack()
            for name, line, function, _ in traceback.extract_stack(frame, limit=1)
        ]
        texts.append(f"{task.get_name()}\n{''.join(frames)}")
    return "\n".join(texts)


def queue(found: WorkQueue) -> str:
    """Describe one queue in a line."""
    return (
        f"{found.name}: {found.depth} ready, {found.processing} in work, {found.delayed} delayed,"
        f" {found.retrying} failing, next waits {found.oldest_wait:.3f}s"
    )


def decisions(ledger: Ledger, key: str = "") -> str:
    """List the objects in work, waiting and finished, with the last decision about each."""
    entries = [entry for entry in ledger.snapshot() if key in entry.key]
    lines = [
        f"{entry.loop} {entry.key} {entry.phase}: {entry.decision} ({entry.reason})"
        f" failures={entry.failures} retry_at={entry.retry_at} error={entry.error!r}\n"
        for entry in entries[:_LONGEST_LIST]
    ]
    if len(entries) > _LONGEST_LIST:
        lines.append(f"... and {len(entries) - _LONGEST_LIST} more\n")
    return "".join(lines)
