"""One connection to a D-Bus message bus, for a single thread at a time (D-Bus specification 0.43).

Whoever needs it now and then imports this module late: the library is not small.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import jeepney
from jeepney.io import blocking

_CONNECT_TIMEOUT = 2.0
_BUS_TIMEOUT = 5.0
"""Seconds for an answer of the bus itself."""


class RefusedError(OSError):
    """An error answer; ``name`` is the error's name, the message what was said."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Connection:
    """A connection that hears who gets and loses one name. Raises OSError when it is made.

    Every method raises TimeoutError and other OSErrors; after any of these that is no
    RefusedError the connection is of no use.
    """

    def __init__(self, address: str, name: str) -> None:
        self._name = name
        self._heard: deque[Any] = deque(maxlen=1)
        self._inner = blocking.open_dbus_connection(bus=address, auth_timeout=_CONNECT_TIMEOUT)
        try:
            rule = jeepney.MatchRule(
                type="signal", sender=jeepney.message_bus.bus_name,
                interface=jeepney.message_bus.interface, member="NameOwnerChanged",
                path=jeepney.message_bus.object_path,
            )  # fmt: skip
            rule.add_arg_condition(0, name)
            self._inner.filter(rule, queue=self._heard)
            self._ask("AddMatch", rule.serialise())
        except BaseException:
            self._inner.close()
            raise

    def owner(self) -> str:
        """Return who has the name now, empty for nobody."""
        try:
            return str(self._ask("GetNameOwner", self._name)[0])
        except RefusedError:
            return ""

    def new_owner(self) -> str | None:
        """Return who has the name since the last time, None where nothing was heard of it."""
        try:
            while True:
                self._inner.recv_messages(timeout=0)
        except TimeoutError:
            return str(self._heard.pop().body[2]) if self._heard else None

    def process(self, owner: str) -> int:
        """Return the process of an owner, 0 where that is not known."""
        try:
            return int(self._ask("GetConnectionUnixProcessID", owner)[0])
        except RefusedError:
            return 0

    def call(
        self, path: str, interface: str, method: str, arguments: Sequence[str], timeout: float
    ) -> Any:
        """Call a method of whoever has the name; return the one value of its answer.

        Nobody is started for it.
        """
        address = jeepney.DBusAddress(path, bus_name=self._name, interface=interface)
        message = jeepney.new_method_call(address, method, "s" * len(arguments), tuple(arguments))
        message.header.flags |= jeepney.MessageFlag.no_auto_start
        return self._answer(message, timeout)[0]

    def close(self) -> None:
        """Leave the bus."""
        self._inner.close()

    def _ask(self, method: str, argument: str) -> tuple[Any, ...]:
        message = jeepney.new_method_call(jeepney.message_bus, method, "s", (argument,))
        return self._answer(message, _BUS_TIMEOUT)

    def _answer(self, message: Any, timeout: float) -> tuple[Any, ...]:
        reply = self._inner.send_and_get_reply(message, timeout=timeout)
        body: tuple[Any, ...] = tuple(reply.body)
        if reply.header.message_type is jeepney.MessageType.error:
            name = str(reply.header.fields.get(jeepney.HeaderFields.error_name, ""))
            raise RefusedError(name, str(body[0]) if body else name)
        return body
