"""The agent's command line as frozen options."""

import pathlib
from dataclasses import dataclass

import bitts
from bitts.core import flags, sidecarflags

PROGRAM = "devcluster-node"


@dataclass(frozen=True, slots=True)
class Options:
    """What the agent is told: its node's name, its cluster and its folder."""

    name: str
    kubeconfig: str
    root: pathlib.Path
    ready_file: pathlib.Path | None
    logs: sidecarflags.LogOptions


class Flags:
    """The agent's flags."""

    def __init__(self) -> None:
        self.set = flags.FlagSet(
            PROGRAM,
            "Registers CSI drivers and runs pods on this machine, as a kubelet would.",
            version=bitts.__version__,
        )
        self._name = self.set.string("name", "", "name of the Node object (required)")
        self._kubeconfig = self.set.string("kubeconfig", "", "the cluster's kubeconfig (required)")
        self._root = self.set.string("root-dir", "", "folder for plugins and pods (required)")
        self._ready = self.set.string("ready-file", "", "file that appears when the node is ready")
        self._logs = sidecarflags.LogFlags(self.set)

    def options(self, values: flags.FlagValues) -> Options:
        """Return the options; raises FlagError naming the flag that is missing."""
        for flag in (self._name, self._kubeconfig, self._root):
            if not values[flag]:
                raise flags.FlagError(f"--{flag.name} is required: {flag.help}")
        ready = values[self._ready]
        return Options(
            name=values[self._name],
            kubeconfig=values[self._kubeconfig],
            root=pathlib.Path(values[self._root]).absolute(),
            ready_file=pathlib.Path(ready) if ready else None,
            logs=self._logs.options(values),
        )
