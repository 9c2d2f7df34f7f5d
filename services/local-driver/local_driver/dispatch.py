"""What every call passes on its way to a service: the log at verbosity 5, and faults if any."""

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import Any, cast

from bitts.core import logs
from bitts.csi import calllog
from bitts.rpc import calls, services, stubs
from bitts.rpc.codes import RpcError

from local_driver import faultrules, faults

_numbers = itertools.count(1)


def short_name(method: str) -> str:
    """Return ``CreateVolume`` of ``/csi.v1.Controller/CreateVolume``."""
    return method.rpartition("/")[2]


class Dispatched(services.Service):
    """A service with the log, and with the faults of ``rules`` unless that is None."""

    def __init__(self, inner: services.Service, rules: faultrules.FaultSet | None) -> None:
        self._inner = inner
        self._rules = rules
        self._log = calllog.CallLog(logs.get("grpc"))
        self._is_logging = logs.get("grpc").at(calllog.VERBOSITY).is_enabled()

    def rpc_methods(self) -> Sequence[services.Method]:
        """Return the inner service's methods, each wrapped."""
        return [self._wrapped(method) for method in self._inner.rpc_methods()]

    def _wrapped(self, method: services.Method) -> services.Method:
        answer = cast(faults.Answer, method.answer)
        if self._rules is not None:
            answer = faults.shaken(short_name(method.name), answer, self._rules)
        if self._is_logging:
            answer = self._logged(method.name, answer)
        return dataclasses.replace(method, answer=answer)

    def _logged(self, name: str, answer: faults.Answer) -> faults.Answer:
        async def logged_answer(request: Any) -> stubs.Message:
            call = calls.Call(next(_numbers), name, request)
            started = time.monotonic()
            self._log.started(call)
            try:
                call.reply = await answer(request)
            except RpcError as error:
                call.error = error
                raise
            finally:
                call.seconds = time.monotonic() - started
                self._log.ended(call)
            return call.reply

        return logged_answer
