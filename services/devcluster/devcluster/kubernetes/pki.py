"""Writes certificates, tokens and kubeconfigs of a cluster; kept when they are there already.

A cluster that starts again in its folder goes on with its authority, tokens and the key of
its service accounts, so that nobody's kubeconfig becomes stale. Certificates are made anew.
"""

import pathlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric import ec

from devcluster import certificates, files
from devcluster.kubernetes import addresses, controlplane, identities
from devcluster.kubernetes.layout import Layout


def prepare(layout: Layout, nodes: Sequence[addresses.Node]) -> dict[identities.User, str]:
    """Write everything but kubeconfigs; return the tokens. Blocking."""
    layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _authority(layout)
    for plan in identities.plans(nodes):
        certificates.issue(authority, plan, layout.pki)
    accounts = layout.pki / "accounts.key"
    if not accounts.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        files.write_private(accounts, certificates.private_pem(key))
    tokens = {user: _token(layout, user) for user in identities.users(nodes)}
    files.write_private(layout.pki / "tokens.csv", identities.token_file(tokens))
    files.write_private(layout.directory / "token", tokens[identities.ADMIN] + "\n")
    (layout.pki / "audit-policy.yaml").write_text(controlplane.AUDIT_POLICY)
    (layout.pki / "egress.yaml").write_text(controlplane.egress_selector(layout))
    return tokens


def write_kubeconfigs(layout: Layout, tokens: dict[identities.User, str], port: int) -> None:
    """Write one kubeconfig for each program, and that of the user. Blocking."""
    ca = layout.directory / "ca.crt"
    for user, token in tokens.items():
        in_node = user == identities.PROXY or user.program.startswith("kubelet-")
        host = addresses.GATEWAY if in_node else "127.0.0.1"
        target = layout.pki / f"{user.program}.kubeconfig"
        files.write_kubeconfig(target, f"https://{host}:{port}", ca, token)
    admin = tokens[identities.ADMIN]
    server = f"https://127.0.0.1:{port}"
    files.write_kubeconfig(layout.directory / "kubeconfig", server, ca, admin)


def _authority(layout: Layout) -> certificates.Authority:
    certificate, key = layout.directory / "ca.crt", layout.pki / "ca.key"
    if certificate.exists() and key.exists():
        return certificates.load_authority(certificate, key)
    authority = certificates.new_authority("bitts-kubernetes-ca")
    certificates.write_authority(authority, certificate, key)
    return authority


def _token(layout: Layout, user: identities.User) -> str:
    path: pathlib.Path = layout.pki / f"{user.program}.token"
    if not path.exists():
        files.write_private(path, identities.new_token() + "\n")
    return path.read_text().strip()
