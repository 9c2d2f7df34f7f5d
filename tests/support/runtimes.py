"""A container runtime as the CNI daemon sees it: gRPC's own server that lists sandboxes."""

import concurrent.futures
import pathlib
from collections.abc import Iterable

import grpc  # type: ignore[import-untyped]  # ships no types
from bitts.rpc import cri

from support import waiting


class Runtime:
    """Answers ListPodSandbox with what ``sandboxes`` holds; an error while ``is_failing``."""

    def __init__(self, socket: pathlib.Path) -> None:
        self.sandboxes: set[str] = set()
        self.is_failing = False
        self.asked = 0
        self._socket = socket
        self._server: grpc.Server | None = None

    @property
    def address(self) -> str:
        """What ``--runtime-endpoint`` is given."""
        return f"unix://{self._socket}"

    def start(self, sandboxes: Iterable[str] = ()) -> None:
        """Serve, knowing these sandboxes."""
        self.sandboxes |= set(sandboxes)
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(self._list)
        methods = {"ListPodSandbox": handler}
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods)]
        )
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        """End, as a runtime that is restarted."""
        if self._server is not None:
            self._server.stop(0).wait(waiting.patient(10))
            self._server = None

    def _list(self, _request: bytes, context: "grpc.ServicerContext") -> bytes:
        self.asked += 1
        if self.is_failing:
            context.abort(grpc.StatusCode.UNAVAILABLE, "server is not initialized yet")
        items = [cri.PodSandbox(id=each) for each in self.sandboxes]
        return bytes(cri.ListPodSandboxResponse(items=items))
