"""What the registrar answers to probes over HTTP.

``/healthz`` is upstream's: the registration socket is there and answers. It proves neither that
the kubelet took the driver nor that the driver lives; ``/readyz`` proves the first, and with
``--health-driver-probe`` the former proves the second too.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Mapping

from bitts.core import dumps, httplistener
from bitts.core.httplistener import Reply
from bitts.core.ledger import Ledger
from bitts.csi import registration
from bitts.rpc.codes import RpcError

from node_driver_registrar import following, names
from node_driver_registrar.following import Follower
from node_driver_registrar.model import Offered, Word
from node_driver_registrar.offering import Offering
from node_driver_registrar.options import Options


class Health:
    """Answers from what the two halves of the registrar know."""

    def __init__(self, options: Options, follower: Follower, offering: Offering) -> None:
        self._options = options
        self._follower = follower
        self._offering = offering
        self._inquiry: registration.Inquiry | None = None
        self._asked: tuple[str, following.Stamp | None] = ("", None)

    def listener(self, ledger: Ledger) -> httplistener.Listener:
        """Return the listener, not yet started."""
        http = self._options.http
        made = httplistener.Listener(http.endpoint, flag=http.flag)
        made.route(names.HEALTH_PATH, self.healthy)
        made.route(names.READY_PATH, self.ready)
        if http.has_dumps:
            made.route(f"{dumps.PATH}/tasks", _text(dumps.tasks))
            made.route(f"{dumps.PATH}/decisions", _text(lambda: dumps.decisions(ledger)))
        return made

    async def healthy(self, query: Mapping[str, str]) -> Reply:
        """Answer 200 if the socket answers, 404 if it is not there, 500 if it is wrong."""
        driver = self._follower.driver
        if driver is None:
            return Reply("no registration socket: the driver has not answered yet\n", status=404)
        path = registration.socket_path(self._options.folder, driver.name)
        reply = await asyncio.to_thread(socket_reply, path)
        if reply is not None:
            return reply
        try:
            info = await self._ask(path)
            if info.name != driver.name:
                text = f"{path} registers {info.name}, not {driver.name}\n"
                return Reply(text, status=500)
            if self._options.http.probes_driver:
                await self._follower.probe()
        except RpcError as error:
            return Reply(f"{error}\n", status=500)
        return Reply("ok")

    async def ready(self, query: Mapping[str, str]) -> Reply:
        """Answer 200 once the kubelet has said that it registered what is offered now."""
        problem = self.problem()
        return Reply(f"{problem}\n", status=503) if problem else Reply("ok")

    def problem(self) -> str:
        """Return why pods cannot use the driver through the kubelet, or ""."""
        return unready(self._offering.offered, self._offering.refusal)

    def is_ready(self) -> bool:
        """As ``ready``, for the gRPC health service."""
        return not self.problem()

    async def close(self) -> None:
        """Close the connection that checks use."""
        inquiry, self._inquiry = self._inquiry, None
        if inquiry is not None:
            await inquiry.close()

    async def _ask(self, path: str) -> registration.PluginInfo:
        """Ask what stands at ``path`` now, over the same connection while that stays."""
        target = (path, await asyncio.to_thread(following.stamp, path))
        inquiry = self._inquiry
        if inquiry is None or target != self._asked:
            former = inquiry
            self._inquiry = inquiry = registration.Inquiry(path)
            self._asked = target
            if former is not None:
                await former.close()
        try:
            return await inquiry.get_info(timeout=self._options.timeout)
        except RpcError as error:
            raise RpcError(error.code, f"{path}: {error.message}") from error


def unready(offered: Offered | None, refusal: str) -> str:
    """Return what keeps the kubelet from using the driver, or ""."""
    if refusal:
        return f"the kubelet refused the driver: {refusal}"
    if offered is None:
        return "the driver is not offered to the kubelet"
    if not offered.is_in_place:
        return "the registration socket was removed or replaced"
    if offered.word is Word.REGISTERED:
        return ""
    return f"the kubelet has not answered for {offered.age:.0f} s"


def socket_reply(path: str) -> Reply | None:
    """Return what is wrong with the file at ``path``; None if it is a socket. Blocks."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return Reply(f"no registration socket: {path} does not exist\n", status=404)
    except OSError as error:
        return Reply(f"{path}: {error.strerror}\n", status=500)
    if not stat.S_ISSOCK(found.st_mode):
        return Reply(f"{path} is no socket\n", status=500)
    return None


def _text(render: Callable[[], str]) -> Callable[[Mapping[str, str]], Awaitable[Reply]]:
    async def handler(query: Mapping[str, str]) -> Reply:
        return Reply(render())

    return handler
