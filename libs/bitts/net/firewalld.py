"""firewalld over D-Bus: which sources are in a zone (firewalld.dbus(5)). Blocking, thread-safe.

firewalld answers one call after the other, so all calls share one connection and wait for each
other. What is set here is runtime configuration: it ends with firewalld, and at its reload.
"""

import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitts.net import systembus

NAME = "org.fedoraproject.FirewallD1"
TIMEOUT = 20.0
"""Seconds that a call may take, with its wait for those before it."""

_PATH = "/org/fedoraproject/FirewallD1"
_ZONE = f"{NAME}.zone"
_VARIABLE = "DBUS_SYSTEM_BUS_ADDRESS"
_SOCKET = "unix:path=/run/dbus/system_bus_socket"
_PAUSE = 5.0
"""Seconds until a bus that refused us is tried again."""

_NO_BUS = {errno.ENOENT, errno.ECONNREFUSED}
_THERE = {"ZONE_ALREADY_SET", "ALREADY_ENABLED"}
_AWAY = {"UNKNOWN_SOURCE", "NOT_ENABLED", "ZONE_CONFLICT", "INVALID_ZONE"}
"""What is said of a source that is not in the zone, or in another one."""


class FirewalldError(OSError):
    """firewalld refused, or cannot be asked; ``code`` is its own word for it: INVALID_ZONE, say."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class NotRunningError(FirewalldError):
    """It does not run here: so nothing is in any zone."""

    def __init__(self) -> None:
        super().__init__("firewalld does not run in the node's network namespace")


class Firewalld:
    """The firewalld of this process's network namespace; one of another is not asked.

    ``address`` is the bus, by default the system's.
    """

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._mutex = threading.Lock()
        self._connection: systembus.Connection | None = None
        self._is_running = False
        self._refusal: OSError | None = None
        self._again = 0.0

    def is_running(self) -> bool:
        """Say whether it is there; quick, unless it has just come or gone."""
        if self._connection is None and not self._has_bus():
            return False
        if not self._mutex.acquire(blocking=False):  # somebody is talking to it, or looking
            return self._is_running
        try:
            self._look()
            return self._is_running
        finally:
            self._mutex.release()

    def add_source(self, zone: str, source: str) -> None:
        """Put an address or subnet into a zone, where it may be already. Raises FirewalldError."""
        try:
            self._call("addSource", zone, source)
        except FirewalldError as error:
            if error.code not in _THERE:
                raise

    def remove_source(self, zone: str, source: str) -> None:
        """Take it out of the zone, where it need not be. Raises FirewalldError."""
        try:
            self._call("removeSource", zone, source)
        except NotRunningError:
            return
        except FirewalldError as error:
            if error.code not in _AWAY:
                raise

    def sources(self, zone: str) -> frozenset[str]:
        """Return what is in a zone by its source. Raises FirewalldError."""
        return frozenset(self._call("getSources", zone))

    def close(self) -> None:
        """Leave the bus."""
        with self._mutex:
            self._drop()

    def _bus(self) -> str:
        return self._address or os.environ.get(_VARIABLE) or _SOCKET

    def _has_bus(self) -> bool:
        """Say whether it is worth trying to connect: without a bus no library is loaded."""
        if self._refusal is not None and time.monotonic() < self._again:
            return False
        kind, _, path = self._bus().partition("path=")
        return kind != "unix:" or os.path.exists(path.partition(",")[0])

    def _look(self) -> None:
        """Learn whether firewalld is there. Raises nothing: without a bus it is not."""
        was_connected = self._connection is not None
        try:
            self._listen()
            self._refusal = None
        except (OSError, RuntimeError) as error:
            self._drop()
            if was_connected:  # the bus may have begun anew
                self._look()
                return
            is_away = isinstance(error, OSError) and error.errno in _NO_BUS
            self._refusal = None if is_away else OSError(str(error) or type(error).__name__)
            self._again = time.monotonic() + _PAUSE

    def _listen(self) -> None:
        """Connect, or hear what is new. Raises OSError, RuntimeError."""
        owner: str | None
        if self._connection is None:
            from bitts.net import systembus  # not small, and most nodes have no firewalld

            self._connection = systembus.Connection(self._bus(), NAME)
            owner = self._connection.owner()
        else:
            owner = self._connection.new_owner()
        if owner is not None:
            process = self._connection.process(owner) if owner else 0
            self._is_running = bool(owner) and not _is_elsewhere(process)

    def _call(self, method: str, *arguments: str) -> Any:
        """Call a method of zones and return the one value of its answer. Raises FirewalldError."""
        deadline = time.monotonic() + TIMEOUT
        if not self._mutex.acquire(timeout=TIMEOUT):
            raise _silent()
        try:
            if self._connection is not None or self._has_bus():
                self._look()
            if self._refusal is not None:
                raise FirewalldError(f"the system bus refuses: {self._refusal}")
            if self._connection is None or not self._is_running:
                raise NotRunningError
            left = max(0.0, deadline - time.monotonic())
            return self._answer(self._connection, method, arguments, left)
        finally:
            self._mutex.release()

    def _answer(
        self, connection: "systembus.Connection", method: str, arguments: tuple[str, ...],
        timeout: float,
    ) -> Any:  # fmt: skip
        from bitts.net import systembus

        try:
            return connection.call(_PATH, _ZONE, method, arguments, timeout)
        except TimeoutError:
            raise _silent() from None
        except systembus.RefusedError as error:
            code = str(error).partition(":")[0]
            known = code if code.isupper() and " " not in code else ""
            raise FirewalldError(f"firewalld: {error}", known) from None
        except (OSError, RuntimeError) as error:
            self._drop()
            raise FirewalldError(f"firewalld cannot be asked: {error}") from None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._is_running = None, False


def _silent() -> FirewalldError:
    return FirewalldError(f"firewalld does not answer within {TIMEOUT:g} seconds")


def _is_elsewhere(process: int) -> bool:
    """Say whether a process is firewalld of another network namespace, as far as it can be seen.

    In a container with processes of its own the number means nothing, or somebody else.
    """
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            is_it = b"firewalld" in file.read()
        return is_it and not os.path.samefile(f"/proc/{process}/ns/net", "/proc/thread-self/ns/net")
    except OSError:
        return False
