"""What a cluster of any kind writes into its folder, and how: the contract with its users.

``ca.crt``, ``token``, ``kubeconfig`` and, last of all, ``ready.json``. Whoever waits for the
latter finds the others complete.
"""

import os
import pathlib
import re
from typing import Final

READY: Final = "ready.json"
INTROSPECTION: Final = "bitts-devcluster.sock"
_PORT = re.compile(r"server: https://127\.0\.0\.1:(\d{1,5})$", re.MULTILINE)
_KUBECONFIG = """apiVersion: v1
kind: Config
current-context: bitts
clusters:
- name: bitts
  cluster:
    server: {server}
    certificate-authority: {ca}
contexts:
- name: bitts
  context:
    cluster: bitts
    user: bitts
users:
- name: bitts
  user:
    token: {token}
"""


def write_kubeconfig(path: pathlib.Path, server: str, ca: pathlib.Path, token: str) -> None:
    """Write a kubeconfig that logs in with a token, readable by its owner only."""
    write_private(path, _KUBECONFIG.format(server=server, ca=ca.resolve(), token=token))


def former_port(directory: pathlib.Path) -> int:
    """Return the port that the cluster of this folder was reached at last, 0 if there was none.

    Whoever has read the kubeconfig knows no other, so a restart keeps it where it can. Blocks.
    """
    try:
        found = _PORT.search((directory / "kubeconfig").read_text())
    except (OSError, UnicodeDecodeError):
        return 0
    return int(found[1]) if found else 0


def write_private(path: pathlib.Path, text: str) -> None:
    """Write a file that only its owner may read, never visible half-written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    partial.rename(path)
