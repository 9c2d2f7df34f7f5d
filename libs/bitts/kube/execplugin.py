"""Credential plugins of a kubeconfig: a program that prints a token or a certificate.

Source: "client-go credential plugins", client.authentication.k8s.io ExecCredential. Run here
and not through kubernetes_asyncio, whose runner has no time limit, hands over no cluster and
does not say when the credential ends. Everything here blocks: callers run it in a thread.
"""

import dataclasses
import datetime as dt
import json
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

from bitts.kube.errors import ConfigError

TIMEOUT = 60.0


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ExecCredential:
    """What a plugin gave: a token, or a client certificate with its key (PEM).

    ``expires`` is in Unix seconds, ``None`` for "until refused".
    """

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Plugin:
    """How a kubeconfig's user names its plugin; ``where`` is for messages."""

    spec: Mapping[str, Any]
    cluster: Mapping[str, Any]
    folder: pathlib.Path
    where: str

    def run(self) -> ExecCredential:
        """Run the program. Raises ConfigError."""
        command = self._command()
        try:
            done = subprocess.run(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except FileNotFoundError:
            hint = str(self.spec.get("installHint") or "install it or correct the path").strip()
            raise ConfigError(f"{self.where}: exec: {command[0]} does not exist: {hint}") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"{self.where}: exec: {command[0]} failed: {error}") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            text = f"{self.where}: exec: {command[0]} returned {done.returncode}: {said}"
            raise ConfigError(text)
        return self._parse(done.stdout)

    def _command(self) -> list[str]:
        command = str(self.spec.get("command") or "")
        if not command or not self.spec.get("apiVersion"):
            raise ConfigError(f"{self.where}: exec: needs command and apiVersion")
        if "/" in command:
            command = str(self.folder / command)
        return [command, *(str(one) for one in self.spec.get("args") or ())]

    def _environment(self) -> dict[str, str]:
        added = {str(one["name"]): str(one["value"]) for one in self.spec.get("env") or ()}
        spec: dict[str, Any] = {"interactive": False}
        if self.spec.get("provideClusterInfo"):
            spec["cluster"] = dict(self.cluster)
        request = {"apiVersion": self.spec["apiVersion"], "kind": "ExecCredential", "spec": spec}
        return {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(request)}

    def _parse(self, output: bytes) -> ExecCredential:
        try:
            answer = json.loads(output)
            status, version = answer["status"], answer["apiVersion"]
            ends = status.get("expirationTimestamp")
            found = ExecCredential(
                token=str(status.get("token") or "").strip(),
                certificate=str(status.get("clientCertificateData") or ""),
                key=str(status.get("clientKeyData") or ""),
                expires=dt.datetime.fromisoformat(ends).timestamp() if ends else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"{self.where}: exec: the output is no ExecCredential: {error!r}"
            raise ConfigError(text) from error
        if version != self.spec["apiVersion"]:
            raise ConfigError(
                f"{self.where}: exec: apiVersion: the plugin answers with {version}, the "
                f"kubeconfig says {self.spec['apiVersion']}"
            )
        if not found.token and not (found.certificate and found.key):
            raise ConfigError(f"{self.where}: exec: the plugin gave neither token nor certificate")
        return found
