"""Certificates that an authority of our own signs: what each says, and the signing.

Keys are on the curve P-256, quick to make, and never leave the cluster's folder.
"""

import datetime as dt
import ipaddress
import pathlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster import files

_VALID = dt.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a certificate says: whom it names, for which addresses, and for which end of TLS.

    ``organizations`` are the groups of a Kubernetes user that logs in with it.
    """

    name: str
    common_name: str
    organizations: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    is_server: bool = False
    is_client: bool = False


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Issued:
    """The files of one certificate."""

    certificate: pathlib.Path
    key: pathlib.Path


def new_authority(common_name: str) -> Authority:
    """Make an authority that signs certificates of servers and clients, no other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject(common_name, ())
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def load_authority(certificate: pathlib.Path, key: pathlib.Path) -> Authority:
    """Read an authority that was written by ``write_authority``. Blocking."""
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{key} holds no key of an elliptic curve: remove it and {certificate}")
    return Authority(x509.load_pem_x509_certificate(certificate.read_bytes()), private)


def write_authority(
    authority: Authority, certificate: pathlib.Path, key: pathlib.Path | None
) -> None:
    """Write the certificate, and the key where more is to be signed later. Blocking."""
    certificate.write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
    if key is not None:
        files.write_private(key, private_pem(authority.key))


def issue(authority: Authority, plan: Plan, folder: pathlib.Path) -> Issued:
    """Sign a certificate and write it as ``<name>.crt`` and ``<name>.key``. Blocking."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.SubjectKeyIdentifier.from_public_key(authority.key.public_key())
    builder = (
        _builder(
            _subject(plan.common_name, plan.organizations),
            authority.certificate.subject,
            key.public_key(),
        )
        .add_extension(x509.ExtendedKeyUsage(_ends(plan)), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False
        )
    )
    if names := _names(plan):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    issued = Issued(folder / f"{plan.name}.crt", folder / f"{plan.name}.key")
    issued.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.write_private(issued.key, private_pem(key))
    return issued


def private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a private key as PEM, in the older form that Kubernetes reads everywhere."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def _subject(common_name: str, organizations: tuple[str, ...]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _names(plan: Plan) -> list[x509.GeneralName]:
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in plan.addresses]
    return [*addresses, *(x509.DNSName(text) for text in plan.dns_names)]


def _ends(plan: Plan) -> list[x509.ObjectIdentifier]:
    server = [ExtendedKeyUsageOID.SERVER_AUTH] if plan.is_server else []
    return [*server, *([ExtendedKeyUsageOID.CLIENT_AUTH] if plan.is_client else [])]


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
