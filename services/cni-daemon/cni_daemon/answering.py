"""From a frame to an answer: the verb is carried out, every failure becomes an error object.

An ADD whose caller has gone meanwhile, or was told to try again, is undone when it ends, since
nobody has its result.
"""

import time
from typing import Protocol

from bitts.cni import documents, errors
from bitts.cni.documents import DocumentError, OutOfRangeError
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.core import logs
from bitts.net.errors import NamespaceError, NetlinkError, is_disk_full

from cni_daemon import chain, forms, protocol, requests
from cni_daemon.delegates import DelegateError
from cni_daemon.engine import Engine
from cni_daemon.executor import OperationError
from cni_daemon.forms import Order
from cni_daemon.intents import Intents
from cni_daemon.locks import StillBusyError
from cni_daemon.operations import MakeVeth
from cni_daemon.protocol import FrameError
from cni_daemon.requests import Request
from cni_daemon.tally import Event, Tally


class Caller(Protocol):
    """Whoever waits for an answer."""

    def is_there(self) -> bool:
        """Say whether it still waits."""

    def tell(self, answer: bytes) -> bool:
        """Give it its answer; False if it has gone, or was told something else. Never raises."""


class Answerer:
    """Answers frames one by one; any number may be under way."""

    def __init__(self, engine: Engine, intents: Intents, tally: Tally) -> None:
        self._engine = engine
        self._intents = intents
        self._tally = tally
        self._log = logs.get("answering")

    def answer(self, data: bytes, caller: Caller) -> None:
        """Carry out what a frame asks for, and tell the caller. Blocks as long as that takes.

        What is noted about a request is noted when its caller has been told: it need not wait.
        """
        started = time.perf_counter()
        version = plugin = command = ""
        code = 0
        self._tally.started()
        try:
            frame = protocol.decode(data)
            plugin, command = frame.plugin, frame.environment.get("CNI_COMMAND", "")
            if requests.is_version(frame):
                document = requests.version_document(frame.plugin)
                caller.tell(protocol.answer(0, documents.render(document, compact=True) + "\n"))
                return
            order = forms.read(frame)
            is_told = None if order is None else self._stamped(order, caller)
            if is_told is None:
                request = requests.read(frame)
                version = request.config.version
                output = self._carry_out(request, caller)
                if order is not None:
                    self._engine.learn(order)
                is_told = caller.tell(protocol.answer(0, output))
            if not is_told and command == Command.ADD:
                self._take_back(requests.read(frame))
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets an error object
            failure = self._failure(error)
            code = int(failure.code)
            caller.tell(protocol.answer(1, errors.encode(failure, version)))
        finally:
            self._tally.ended(plugin, command, code, time.perf_counter() - started)

    def _stamped(self, order: Order, caller: Caller) -> bool | None:
        """Attach by a template and say whether the caller was told; None where there is none."""
        kept = self._engine.template(order)
        if kept is None:
            return None
        self._intents.before_add()
        return self._engine.stamp(
            kept, order, caller.is_there, lambda output: caller.tell(protocol.answer(0, output))
        )

    def _carry_out(self, request: Request, caller: Caller) -> str:
        match request.invocation.command:
            case Command.ADD:
                self._intents.before_add()
                return documents.render(self._engine.add(request, caller.is_there))
            case Command.DEL:
                self._engine.remove(request)
            case Command.CHECK:
                self._engine.check(request)
            case Command.GC:
                self._tally.event(Event.COLLECTED, self._engine.collect(request))
            case Command.STATUS:
                self._engine.status(request)
            case Command.VERSION:
                raise CniError(Code.INTERNAL, "VERSION has no configuration")
        return ""

    def _take_back(self, request: Request) -> None:
        self._tally.event(Event.UNDONE)
        self._log.warning("Undoing an ADD, its caller has gone", attachment=str(chain.key(request)))
        try:
            self._engine.remove(request)
        except Exception as error:  # noqa: BLE001 - the journal keeps it; DEL or GC will follow
            self._log.error("Cannot undo an ADD", err=error)

    def _failure(self, error: Exception) -> CniError:
        match error:
            case CniError():
                return error
            case OutOfRangeError():
                return CniError(Code.INVALID_CONFIG, str(error))
            case DocumentError():
                return CniError(Code.DECODING_FAILURE, f"failed to load netconf: {error}")
            case FrameError():
                return CniError(Code.IO_FAILURE, str(error))
            case DelegateError():
                return error.error
            case OperationError():
                return _of_operation(error)
            case StillBusyError():
                return CniError(Code.TRY_AGAIN_LATER, str(error))
            case OSError() if is_disk_full(error):
                return CniError(Code.IO_FAILURE, f"cannot write: {error}", "nothing was changed")
            case OSError() | NetlinkError() | NamespaceError():
                return CniError(Code.INTERNAL, str(error))
            case _:
                self._log.error("Unexpected failure", err=error, kind=type(error).__name__)
                return CniError(Code.INTERNAL, f"internal error: {type(error).__name__}: {error}")


def _of_operation(error: OperationError) -> CniError:
    cause, operation = error.cause, error.operation
    if isinstance(cause, DelegateError):
        return cause.error
    if isinstance(cause, NetlinkError) and cause.is_present and isinstance(operation, MakeVeth):
        pod, host = operation.pod.name, operation.host.name
        return CniError(
            Code.INTERNAL,
            f'container veth name ("{pod}") peer provided ("{host}") already exists',
        )
    return CniError(Code.INTERNAL, str(error))
