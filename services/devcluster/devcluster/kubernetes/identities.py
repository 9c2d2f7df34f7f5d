"""Who is who in a cluster: certificates and tokens of every program. Pure.

Programs log in with tokens from one file, each under the name to which Kubernetes binds its
rights. Certificates are for servers, and for the API server as a client of etcd and kubelets.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from devcluster.certificates import Plan
from devcluster.kubernetes import addresses


@dataclass(frozen=True, slots=True)
class User:
    """A name in the token file; ``program`` is what the token's file is called."""

    program: str
    name: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", "bitts-admin", ("system:masters",))
CONTROLLER_MANAGER = User("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER = User("kube-scheduler", "system:kube-scheduler")
PROXY = User("kube-proxy", "system:kube-proxy")

API_SERVER = Plan(
    name="apiserver",
    common_name="kube-apiserver",
    addresses=("127.0.0.1", addresses.GATEWAY, addresses.API_SERVICE),
    dns_names=(
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ),
    is_server=True,
)
ETCD = Plan(
    name="etcd", common_name="etcd", addresses=("127.0.0.1",), is_server=True, is_client=True
)
ETCD_CLIENT = Plan(name="etcd-client", common_name="kube-apiserver", is_client=True)
KUBELET_CLIENT = Plan(
    name="kubelet-client",
    common_name="kube-apiserver-kubelet-client",
    organizations=("system:masters",),
    is_client=True,
)


def kubelet(node: addresses.Node) -> User:
    """Return whom a node's kubelet logs in as: the node authorizer knows it by this name."""
    return User(f"kubelet-{node.name}", f"system:node:{node.name}", ("system:nodes",))


def users(nodes: Iterable[addresses.Node]) -> list[User]:
    """Return everybody who logs in with a token."""
    return [ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY, *(kubelet(node) for node in nodes)]


def plans(nodes: Iterable[addresses.Node]) -> list[Plan]:
    """Return every certificate that the authority signs."""
    serving = [
        Plan(
            name=f"kubelet-{node.name}",
            common_name=f"system:node:{node.name}",
            organizations=("system:nodes",),
            addresses=(node.address,),
            dns_names=(node.name,),
            is_server=True,
        )
        for node in nodes
    ]
    return [API_SERVER, ETCD, ETCD_CLIENT, KUBELET_CLIENT, *serving]


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(32)


def token_file(tokens: Mapping[User, str]) -> str:
    """Return the API server's token file: token, user, uid and groups in each line."""
    return "".join(
        f'{token},"{user.name}","{user.program}","{",".join(user.groups)}"\n'
        for user, token in tokens.items()
    )
