"""A whole list of plugins beside the reference's: bridge, portmap, firewall, bandwidth.

``walked`` is what runtimes do with any list: one program after the other, each handed the
result of the one before; times are summed. ``whole`` is our own type, one call for the list.
"""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MBIT = 1_000_000
_LIMITS = {
    "ingressRate": 100 * _MBIT, "ingressBurst": 10 * _MBIT,
    "egressRate": 100 * _MBIT, "egressBurst": 10 * _MBIT,
}  # fmt: skip
_WARM_UP = 3
_FIRST_PORT = 20_000

Run = Callable[[str], float]


def plugins(folder: pathlib.Path, bridge: str, subnet: str, number: int) -> list[dict[str, Any]]:
    """Return the list for one pod: a port of its own is published."""
    port = {"hostPort": _FIRST_PORT + number, "containerPort": 80, "protocol": "tcp"}
    ipam = {"type": "host-local", "dataDir": str(folder / "ipam"),
            "ranges": [[{"subnet": subnet}]]}  # fmt: skip
    return [
        {"type": "bridge", "bridge": bridge, "isDefaultGateway": True, "hairpinMode": True,
         "ipMasq": True, "ipam": ipam},
        {"type": "portmap", "runtimeConfig": {"portMappings": [port]}},
        {"type": "firewall"},
        {"type": "bandwidth", "runtimeConfig": {"bandwidth": _LIMITS}},
    ]  # fmt: skip


@dataclass
class Chain:
    """One way to carry out the list, with the times that it took."""

    name: str
    folder: pathlib.Path
    programs: pathlib.Path
    bridge: str
    subnet: str
    run: Run
    is_whole: bool = False
    add: list[float] = field(default_factory=list)
    delete: list[float] = field(default_factory=list)
    _results: dict[int, Any] = field(default_factory=dict)

    def round(self, pods: Sequence[str]) -> None:
        """Attach and detach every pod, one after the other; a few go before, unmeasured.

        The kernel is still clearing up after the round before, and rules that stay are laid once.
        """
        for pod in pods[:_WARM_UP]:
            self._attach(0, pod)
            self._detach(0, pod)
        for number, pod in enumerate(pods):
            self.add.append(self._attach(number, pod))
        for number, pod in enumerate(pods):
            self.delete.append(self._detach(number, pod))

    def _attach(self, number: int, pod: str) -> float:
        took, previous = 0.0, None
        for config in self.configs(number):
            took += self._call("ADD", config, previous, number, pod)
            previous = json.loads((self.folder / "stdout").read_text())
        self._results[number] = previous
        return took

    def _detach(self, number: int, pod: str) -> float:
        previous = self._results.pop(number)
        return sum(
            self._call("DEL", config, previous, number, pod)
            for config in reversed(self.configs(number))
        )

    def configs(self, number: int) -> list[dict[str, Any]]:
        """Return what each program of the list is handed for one pod."""
        listed = plugins(self.folder, self.bridge, self.subnet, number)
        head = {"cniVersion": "1.0.0", "name": self.name}
        if not self.is_whole:
            return [{**head, **each} for each in listed]
        offered: dict[str, Any] = {}
        for each in listed:
            runtime = each.pop("runtimeConfig", {})
            each["capabilities"] = dict.fromkeys(runtime, True)
            offered |= runtime
        return [{**head, "type": "bitts", "plugins": listed, "runtimeConfig": offered}]

    def _call(
        self, command: str, config: Mapping[str, Any], previous: Any, number: int, pod: str
    ) -> float:
        stdin = self.folder / f"{self.name}.chain.json"
        known = {} if previous is None else {"prevResult": previous}
        stdin.write_text(json.dumps({**config, **known}))
        output = self.folder / "stdout"
        return self.run(self.line("R", command, config, number, pod, stdin, output))

    def line(
        self, kind: str, command: str, config: Mapping[str, Any], number: int, pod: str,
        stdin: pathlib.Path, stdout: pathlib.Path,
    ) -> str:  # fmt: skip
        """Return the harness's command for one program."""
        words = (
            kind, str(self.programs / config["type"]), str(stdin), str(stdout),
            f"CNI_COMMAND={command}", f"CNI_CONTAINERID=chain{number}", f"CNI_NETNS={pod}",
            "CNI_IFNAME=eth0", f"CNI_PATH={self.programs}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        )  # fmt: skip
        return "\t".join(words)
