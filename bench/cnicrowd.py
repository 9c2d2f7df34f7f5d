"""What an attachment costs beside few others, and beside a thousand."""

import json
import pathlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Run = Callable[[str], float]
_FEW = 10
_FLOORS = 50_000
"""Numbers of the floor's links here, which the harness has not used before."""

_MEASURED = 20  # a bridge has no more than 1,023 ports


@dataclass(frozen=True, slots=True)
class Crowd:
    """Median milliseconds of ADD, DEL and the kernel's floor, beside few attachments and many."""

    few: tuple[float, float, float]
    many: tuple[float, float, float]


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

    def some(floor: int) -> tuple[float, float, float]:
        numbers = range(count, count + _MEASURED)
        added = statistics.median([call("ADD", each) for each in numbers])
        deleted = statistics.median([call("DEL", each) for each in numbers])
        bare = [run(f"F {pods[n % len(pods)]} {floor + n} br-e") for n in range(_MEASURED)]
        return added, deleted, statistics.median(bare)

    for number in range(_FEW):
        call("ADD", number)
    few = some(_FLOORS)
    for number in range(_FEW, count):
        call("ADD", number)
    many = some(_FLOORS + _MEASURED)
    full = memory()
    for number in range(count):
        call("DEL", number)
    return Crowd(few, many), full
