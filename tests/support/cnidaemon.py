"""The CNI daemon in a namespace that plays the node, called through its shim as runtimes do."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cni_daemon import names, requests
from cni_daemon.installing import Installation, install

from support import netns, processes, waiting


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plugin printed, and how it ended."""

    status: int
    stdout: str
    stderr: str = ""

    @property
    def document(self) -> Any:
        """The printed JSON, None for nothing."""
        return json.loads(self.stdout) if self.stdout.strip() else None

    @property
    def error(self) -> str:
        """The error as callers render it: ``code: message; details``."""
        if not self.status:
            return ""
        found = self.document or {}
        details = f"; {found['details']}" if found.get("details") else ""
        return f"{found.get('code')}: {found.get('msg')}{details}"


class Running:
    """A plugin program that runs beside the test; call it for the outcome."""

    def __init__(self, popen: "subprocess.Popen[str]", config: Mapping[str, Any] | str) -> None:
        self._popen = popen
        assert popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it refuses to read on: it will say why
            popen.stdin.write(config if isinstance(config, str) else json.dumps(config))
            popen.stdin.close()
        popen.stdin = None

    def __call__(self) -> Outcome:
        """Wait for the end."""
        stdout, stderr = self._popen.communicate(timeout=waiting.patient(90))
        return Outcome(self._popen.returncode, stdout, stderr)

    def kill(self) -> None:
        """End it as a runtime does whose patience is over."""
        self._popen.kill()
        self._popen.communicate()


def begin(
    program: pathlib.Path | str,
    command: str,
    config: Mapping[str, Any] | str,
    *,
    host: str = "",
    container: str = "c1",
    pod: str = "",
    ifname: str = "eth0",
    args: str = "",
    path: str = "",
    environ: Mapping[str, str] | None = None,
    niceness: int = 0,
) -> Running:
    """Start a plugin program as a runtime would, inside the namespace ``host`` if given."""
    variables = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": pod,
        "CNI_IFNAME": ifname,
        "CNI_ARGS": args,
        "CNI_PATH": path or str(pathlib.Path(program).parent),
        "PATH": os.environ["PATH"],
        **(environ or {}),
    }
    inside = ["nsenter", f"--net={host}", "--"] if host else []
    slowly = ["nice", "-n", str(niceness)] if niceness else []
    popen = subprocess.Popen(
        [*slowly, *inside, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
    )
    return Running(popen, config)


def execute(
    program: pathlib.Path | str, command: str, config: Mapping[str, Any] | str, **about: Any
) -> Outcome:
    """Run a plugin program as a runtime would, to its end; ``about`` as for ``begin``."""
    return begin(program, command, config, **about)()


class Daemon:
    """A daemon of one test. ``call`` runs a plugin through the shim."""

    def __init__(
        self, spawner: processes.Processes, host: str, folder: pathlib.Path, *flags: str
    ) -> None:
        self.host = host
        self.folder = folder
        self.plugins = folder / "bin"
        self.socket = folder / "cni.sock"
        self.state = folder / "state"
        self._spawner = spawner
        self._flags = flags
        self.process: processes.Process | None = None
        install(
            Installation(self.plugins, str(self.socket), str(self.state), requests.served_types())
        )

    @property
    def ipam(self) -> pathlib.Path:
        """Where configurations of tests keep their addresses."""
        return self.folder / "ipam"

    @property
    def intents(self) -> list[pathlib.Path]:
        """What the shim left for later."""
        return sorted((self.state / names.INTENTS).iterdir())

    def spawn(self, *flags: str) -> processes.Process:
        """Start one that may well refuse."""
        command = ["/usr/bin/nsenter", f"--net={self.host}", "--", processes.script("cni-daemon")]
        return self._spawner.spawn(
            [*command, f"--socket={self.socket}", f"--state-dir={self.state}", "--v=2",
             *self._flags, *flags],
            name="cni-daemon",
        )  # fmt: skip

    def start(self, *flags: str) -> processes.Process:
        """Start, and wait until it serves."""
        self.socket.unlink(missing_ok=True)
        self.process = self.spawn(*flags)
        self.process.wait_ready_blocking(lambda: '"Serving"' in self.log(), "serving")
        return self.process

    def log(self) -> str:
        """Return what the present process wrote."""
        return "" if self.process is None else self.process.output()

    def kill(self) -> None:
        """End it as a crash does."""
        assert self.process is not None
        self.process.kill()

    def await_crash(self) -> None:
        """Wait until the process has died by the fault it was started with."""
        process = self.process
        assert process is not None
        waiting.until_blocking(lambda: not process.alive, "crash of the daemon")
        assert process.exit_code == -signal.SIGKILL, self.log()

    def stop(self) -> None:
        """End it in order."""
        assert self.process is not None
        process = self.process
        process.send_signal(signal.SIGTERM)
        waiting.until_blocking(lambda: not process.alive, "end of the daemon")

    def config(self, plugin: str, **keys: Any) -> dict[str, Any]:
        """Return a configuration; ``ipam`` defaults to host-local on a /24."""
        document = {"cniVersion": "1.1.0", "name": "tnet", "type": plugin, **keys}
        if document.get("ipam") == "host-local":
            document["ipam"] = {
                "type": "host-local",
                "dataDir": str(self.ipam),
                "ranges": [[{"subnet": "10.88.0.0/24"}]],
            }
        return document

    def call(self, command: str, config: Mapping[str, Any], **about: Any) -> Outcome:
        """Run the plugin that the configuration names, through the shim."""
        return self.begin(command, config, **about)()

    def begin(self, command: str, config: Mapping[str, Any], **about: Any) -> Running:
        """Start the plugin that the configuration names, through the shim."""
        return begin(self.plugins / config["type"], command, config, host=self.host, **about)

    def addresses(self, network: str = "tnet") -> dict[str, str]:
        """Return the reservations on disk: address → owner."""
        folder = self.ipam / network
        if not folder.exists():
            return {}
        return {
            each.name: each.read_text()
            for each in folder.iterdir()
            if each.name != "lock" and not each.name.startswith("last_")
        }


def leftovers(host: str) -> list[str]:
    """Return what attachments left in the node's namespace: links, set elements, routes."""
    found = [name for name, link in netns.links(host).items() if link.get("ifalias")]
    found += [name for name in netns.links(host) if name.startswith("veth")]
    ruleset = netns.as_json(host, "nft", "-j", "list", "ruleset")["nftables"]
    for entry in ruleset:
        for kind in ("set", "map"):
            found += [
                f"{kind} {entry[kind]['name']}: {e}" for e in entry.get(kind, {}).get("elem", [])
            ]
    return sorted(set(found))
