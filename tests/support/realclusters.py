"""kubectl and pods on a Kubernetes cluster that a test or a module has for itself."""

import contextlib
import pathlib
from typing import Any

from support import processes, servers

PODS = "/api/v1/namespaces/default/pods"


class Real:
    """A cluster, kubectl for it, and the pods that a test made there."""

    def __init__(self, server: servers.Server, kubectl: pathlib.Path) -> None:
        self.server = server
        self._kubectl = str(kubectl)
        self._made: list[str] = []

    async def kubectl(self, *words: str, timeout: float = 40.0, check: bool = True) -> str:
        """Run kubectl of the cluster's version."""
        config = f"--kubeconfig={self.server.access.kubeconfig}"
        return await processes.run([self._kubectl, config, *words], timeout=timeout, check=check)

    async def run_pod(self, name: str, node: str, *command: str) -> None:
        """Make a pod on a node and wait until it is ready."""
        self._made.append(name)
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "busybox:1.37", "command": list(command)}],
            },
        }
        async with self.server.session() as session:
            await servers.call(session, "POST", PODS, body)
        await self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")

    async def pod(self, name: str) -> dict[str, Any]:
        """Return a pod."""
        async with self.server.session() as session:
            found: dict[str, Any] = await servers.call(session, "GET", f"{PODS}/{name}")
            return found

    async def clear(self) -> None:
        """Delete the pods that were made, and the Services of their names, without waiting."""
        services = PODS.replace("pods", "services")
        async with self.server.session() as session:
            for name in self._made:
                for path in (f"{PODS}/{name}?gracePeriodSeconds=0", f"{services}/{name}"):
                    with contextlib.suppress(servers.RefusedError):
                        await servers.call(session, "DELETE", path)
