"""Plugins that are not ours, run as libcni runs them: found in CNI_PATH, fed on stdin.

The environment is the caller's; the configuration is the whole one of the plugin above. What
can go wrong is told in libcni's words, since people search for them.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

from bitts.cni import documents, errors, validation
from bitts.cni.documents import DocumentError
from bitts.cni.errors import CniError, Code

TIMEOUT = 30.0
"""Seconds that a delegated plugin may take; then it is killed. A request is answered in 45."""

OUTPUT_LIMIT = 1 << 20
"""Bytes that it may print: it is killed when it prints more. What it says beside is cut off."""

_CHUNK = 1 << 16


class DelegateError(Exception):
    """A delegated plugin failed; ``error`` is what it said."""

    def __init__(self, error: CniError) -> None:
        super().__init__(str(error))
        self.error = error


class PluginMissingError(DelegateError):
    """There is no such program: it never ran."""


def find(kind: str, path: Sequence[str]) -> str:
    """Return the first file of that name in the given folders. Raises DelegateError."""
    try:
        validation.plugin_type(kind)
    except CniError as error:
        raise DelegateError(error) from None
    if not path:
        raise PluginMissingError(CniError(Code.INTERNAL, "no paths provided"))
    for folder in path:
        candidate = os.path.join(folder, kind)
        if os.path.isabs(folder) and os.path.isfile(candidate):
            return candidate
    shown = " ".join(path)
    raise PluginMissingError(
        CniError(Code.INTERNAL, f'failed to find plugin "{kind}" in path [{shown}]')
    )


def run(kind: str, stdin: bytes, environment: Mapping[str, str], timeout: float = TIMEOUT) -> bytes:
    """Run a plugin and return what it printed. Blocks. Raises DelegateError."""
    folders = [each for each in environment.get("CNI_PATH", "").split(":") if each]
    program = find(kind, folders)
    try:
        with _started(program, environment) as process:
            stdout, stderr = _talk(process, stdin, time.monotonic() + timeout)
            status = process.wait()
    except (TimeoutError, subprocess.TimeoutExpired):
        message = f"plugin {kind} did not end within {timeout:g} seconds"
        raise DelegateError(CniError(Code.TRY_AGAIN_LATER, message)) from None
    except _TooMuchError:
        message = f"plugin {kind} printed more than {OUTPUT_LIMIT} bytes, and was killed"
        raise DelegateError(CniError(Code.DECODING_FAILURE, message)) from None
    except OSError as error:
        raise DelegateError(CniError(Code.INTERNAL, f"cannot run plugin {kind}: {error}")) from None
    if status == 0:
        return stdout
    raise DelegateError(_failure(stdout, stderr, status))


class _TooMuchError(Exception):
    """The plugin prints without end."""


@contextlib.contextmanager
def _started(program: str, environment: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a program, and end it with all it has started unless it has come to an end itself."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [program], stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environment), bufsize=0,
        process_group=0,
    )  # fmt: skip
    try:
        yield process
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        for end in (process.stdin, process.stdout, process.stderr):
            if end is not None:
                end.close()


def _talk(process: "subprocess.Popen[bytes]", stdin: bytes, deadline: float) -> tuple[bytes, bytes]:
    """Feed a program and read what it says, to the end. Raises TimeoutError, _TooMuchError."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as waiting:
        os.set_blocking(process.stdin.fileno(), False)
        waiting.register(process.stdin, selectors.EVENT_WRITE)
        for descriptor in said:
            waiting.register(descriptor, selectors.EVENT_READ)
        while waiting.get_map():
            if time.monotonic() > deadline:
                raise TimeoutError
            for key, _ in waiting.select(max(0.0, deadline - time.monotonic())):
                if key.fileobj is process.stdin:
                    stdin = _fed(key.fd, stdin)
                    is_over = not stdin
                else:
                    is_over = not _heard(key.fd, said[key.fd])
                if is_over:
                    waiting.unregister(key.fileobj)
                    if key.fileobj is process.stdin:  # the program must hear that this is all
                        process.stdin.close()
            if len(said[process.stdout.fileno()]) > OUTPUT_LIMIT:
                raise _TooMuchError
    process.wait(max(0.0, deadline - time.monotonic()))
    stdout, stderr = said.values()
    return bytes(stdout), bytes(stderr)


def _fed(descriptor: int, data: bytes) -> bytes:
    """Write what fits; returns the rest, nothing also when nobody reads on."""
    try:
        return data[os.write(descriptor, data[:_CHUNK]) :] if data else b""
    except BrokenPipeError:
        return b""


def _heard(descriptor: int, said: bytearray) -> bool:
    """Read once, and keep what is not beyond the limit; returns whether there may be more."""
    data = os.read(descriptor, _CHUNK)
    said += data[: max(0, OUTPUT_LIMIT + 1 - len(said))]
    return bool(data)


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
