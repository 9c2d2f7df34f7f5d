"""The log of CSI calls: verbosity 5, as upstream's sidecars write it, without secrets.

Messages are turned into text only when the level is on: a ListVolumes answer of megabytes
must not cost anything that nobody reads.
"""

from bitts.core import logs
from bitts.csi import redact
from bitts.rpc import calls

VERBOSITY = 5


class CallLog:
    """Writes a line when a call goes out and one when it ends.

    ``limit`` cuts each message to so many bytes (``--max-grpc-log-length``); 0 or less: never.
    """

    def __init__(self, log: logs.Logger, limit: int = 0) -> None:
        self._log = log.at(VERBOSITY)
        self._limit = limit

    def started(self, call: calls.Call) -> None:
        """Log the request."""
        if self._log.is_enabled():
            request = redact.render(call.request, self._limit)
            self._log.info("GRPC call", call=call.number, method=call.method, request=request)

    def ended(self, call: calls.Call) -> None:
        """Log the answer or the error."""
        if self._log.is_enabled():
            self._log.info(
                "GRPC response",
                call=call.number,
                method=call.method,
                response=redact.render(call.reply, self._limit),
                err=call.error,
                seconds=round(call.seconds, 6),
            )
