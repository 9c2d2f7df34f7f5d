"""A certificate authority of our own, a server certificate for loopback, and a kubeconfig.

Made anew at every start where the folder has none, kept otherwise, so that clients of a
restarted server go on.
"""

import datetime as dt
import ipaddress
import os
import pathlib
import secrets
import ssl
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = dt.timedelta(days=365)
_KUBECONFIG = """apiVersion: v1
kind: Config
current-context: bitts
clusters:
- name: bitts
  cluster:
    server: {server}
    certificate-authority: {ca}
contexts:
- name: bitts
  context:
    cluster: bitts
    user: bitts
users:
- name: bitts
  user:
    token: {token}
"""


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
        _issue(ca, certificate, key)
        write_private(token, secrets.token_urlsafe(32) + "\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return Credentials(ca, token.read_text().strip(), context)


def write_kubeconfig(path: pathlib.Path, server: str, credentials: Credentials) -> None:
    """Write a kubeconfig with all rights, readable by its owner only."""
    ca = credentials.ca.resolve()
    write_private(path, _KUBECONFIG.format(server=server, ca=ca, token=credentials.token))


def write_private(path: pathlib.Path, text: str) -> None:
    """Write a file that only its owner may read, never visible half-written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    partial.rename(path)


def _issue(ca: pathlib.Path, certificate: pathlib.Path, key: pathlib.Path) -> None:
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bitts-devcluster-ca")])
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bitts-devcluster")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    server = (
        _builder(subject, authority_name, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    private = server_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_private(key, private.decode())


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
