"""What an attachment costs beside few others, and beside a thousand."""

import json
import pathlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Run = Callable[[str], float]
_FEW = 10
_MEASURED = 20  # a bridge has no more than 1,023 ports


@dataclass(frozen=True, slots=True)
class Crowd:
    """Median times in milliseconds beside few attachments and beside many."""

    few: tuple[float, float]
    many: tuple[float, float]


def measure(
    run: Run, plugins: pathlib.Path, folder: pathlib.Path, pods: Sequence[str], count: int,
    memory: Callable[[], float],
) -> tuple[Crowd, float]:  # fmt: skip
    """Return what an ADD and a DEL cost, and the daemon's memory with ``count`` attachments.

    Containers have many links each: it is attachments that may make things slow, not namespaces.
    """
    config = folder / "crowd.json"
    config.write_text(
        json.dumps(
            {"cniVersion": "1.0.0", "name": "crowd", "type": "bridge", "bridge": "br-e",
             "isGateway": True, "ipam": {"type": "host-local", "dataDir": str(folder / "ipam"),
                                         "ranges": [[{"subnet": "10.94.0.0/16"}]]}}
        )
    )  # fmt: skip

    def call(command: str, number: int) -> float:
        place, link = number % len(pods), number // len(pods)
        words = (
            "R", str(plugins / "bridge"), str(config), str(folder / "stdout"),
            f"CNI_COMMAND={command}", f"CNI_CONTAINERID=crowd{place}", f"CNI_NETNS={pods[place]}",
            f"CNI_IFNAME=net{link}", f"CNI_PATH={plugins}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        )  # fmt: skip
        return run("\t".join(words))

    def some(first: int) -> tuple[float, float]:
        numbers = range(first, first + _MEASURED)
        added = statistics.median([call("ADD", each) for each in numbers])
        return added, statistics.median([call("DEL", each) for each in numbers])

    for number in range(_FEW):
        call("ADD", number)
    few = some(count)
    for number in range(_FEW, count):
        call("ADD", number)
    many = some(count)
    full = memory()
    for number in range(count):
        call("DEL", number)
    return Crowd(few, many), full
