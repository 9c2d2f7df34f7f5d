"""Plugins that are not ours, run as libcni runs them: found in CNI_PATH, fed on stdin.

The environment is the caller's; the configuration is the whole one of the plugin above. What
can go wrong is told in libcni's words, since people search for them.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence

from bitts.cni import documents, errors, validation
from bitts.cni.documents import DocumentError
from bitts.cni.errors import CniError, Code

TIMEOUT = 60.0
"""Seconds that a delegated plugin may take; then it is killed."""

_OUTPUT_LIMIT = 1 << 20


class DelegateError(Exception):
    """A delegated plugin failed; ``error`` is what it said."""

    def __init__(self, error: CniError) -> None:
        super().__init__(str(error))
        self.error = error


def find(kind: str, path: Sequence[str]) -> str:
    """Return the first file of that name in the given folders. Raises DelegateError."""
    try:
        validation.plugin_type(kind)
    except CniError as error:
        raise DelegateError(error) from None
    if not path:
        raise DelegateError(CniError(Code.INTERNAL, "no paths provided"))
    for folder in path:
        candidate = os.path.join(folder, kind)
        if os.path.isabs(folder) and os.path.isfile(candidate):
            return candidate
    shown = " ".join(path)
    raise DelegateError(
        CniError(Code.INTERNAL, f'failed to find plugin "{kind}" in path [{shown}]')
    )


def run(kind: str, stdin: bytes, environment: Mapping[str, str]) -> bytes:
    """Run a plugin and return what it printed. Blocks. Raises DelegateError."""
    folders = [each for each in environment.get("CNI_PATH", "").split(":") if each]
    program = find(kind, folders)
    try:
        done = subprocess.run(
            [program], input=stdin, capture_output=True, env=dict(environment),
            timeout=TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        message = f"plugin {kind} did not end within {TIMEOUT:g} seconds"
        raise DelegateError(CniError(Code.TRY_AGAIN_LATER, message)) from None
    except OSError as error:
        raise DelegateError(CniError(Code.INTERNAL, f"cannot run plugin {kind}: {error}")) from None
    if done.returncode == 0:
        return done.stdout[:_OUTPUT_LIMIT]
    raise DelegateError(_failure(done.stdout[:_OUTPUT_LIMIT], done.stderr, done.returncode))


def _failure(stdout: bytes, stderr: bytes, status: int) -> CniError:
    ending = f"exit status {status}"
    if not stdout.strip():
        said = stderr.decode(errors="replace").strip()
        if not said:
            return CniError(Code.INTERNAL, f"netplugin failed with no error message: {ending}")
        return CniError(Code.INTERNAL, f'netplugin failed: "{said}": {ending}')
    try:
        return errors.decode(stdout)
    except DocumentError as error:
        said = documents.render(stdout.decode(errors="replace"), compact=True)
        message = f"netplugin failed but error parsing its diagnostic message {said}: {error}"
        return CniError(Code.INTERNAL, message)
