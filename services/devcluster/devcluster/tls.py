"""The embedded server's certificate for loopback, and the token that it asks for.

Made anew at every start where the folder has none, kept otherwise, so that clients of a
restarted server go on.
"""

import pathlib
import secrets
import ssl
from dataclasses import dataclass

from devcluster import certificates, files

SERVER = certificates.Plan(
    name="server",
    common_name="bitts-devcluster",
    addresses=("127.0.0.1",),
    dns_names=("localhost",),
    is_server=True,
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the server presents and what it asks for."""

    ca: pathlib.Path
    token: str
    context: ssl.SSLContext


def prepare(directory: pathlib.Path) -> Credentials:
    """Read or make ca.crt, server.crt, server.key and token in a folder."""
    ca, token = directory / "ca.crt", directory / "token"
    certificate, key = directory / "server.crt", directory / "server.key"
    if not all(path.exists() for path in (ca, token, certificate, key)):
        authority = certificates.new_authority("bitts-devcluster-ca")
        certificates.write_authority(authority, ca, None)
        certificates.issue(authority, SERVER, directory)
        files.write_private(token, secrets.token_urlsafe(32) + "\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return Credentials(ca, token.read_text().strip(), context)
