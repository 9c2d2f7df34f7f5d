"""What is mounted where, from the kernel itself (proc(5), ``/proc/self/mountinfo``)."""

import pathlib
import re

_ESCAPE = re.compile(r"\\([0-7]{3})")


def targets(text: str) -> list[str]:
    """Mount points in the order of mounting; the kernel's octal escapes are undone."""
    fields = (line.split(" ") for line in text.splitlines())
    return [_ESCAPE.sub(lambda m: chr(int(m[1], 8)), field[4]) for field in fields]


def current() -> list[str]:
    """This process's mount points."""
    return targets(pathlib.Path("/proc/self/mountinfo").read_text())


def below(folder: pathlib.Path) -> list[str]:
    """Mount points at or below a folder, the last mounted first."""
    root = str(folder)
    return [t for t in reversed(current()) if t == root or t.startswith(f"{root}/")]
