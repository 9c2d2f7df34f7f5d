"""Certificates: what a plan says is what a TLS peer sees."""

import pathlib
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from devcluster import certificates

PLAN = certificates.Plan(
    name="kubelet",
    common_name="system:node:node-1",
    organizations=("system:nodes",),
    addresses=("172.31.0.11",),
    dns_names=("node-1",),
    is_server=True,
)


@pytest.fixture
def authority() -> certificates.Authority:
    return certificates.new_authority("test-ca")


def read(issued: certificates.Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.certificate.read_bytes())


def test_a_certificate_names_user_groups_and_addresses(
    authority: certificates.Authority, tmp_path: pathlib.Path
) -> None:
    found = read(certificates.issue(authority, PLAN, tmp_path))
    subject = {attribute.oid: attribute.value for attribute in found.subject}
    assert subject == {
        NameOID.ORGANIZATION_NAME: "system:nodes",
        NameOID.COMMON_NAME: "system:node:node-1",
    }
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node-1"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["172.31.0.11"]


@pytest.mark.parametrize(
    ("is_server", "is_client", "expected"),
    [
        pytest.param(True, False, [ExtendedKeyUsageOID.SERVER_AUTH], id="server"),
        pytest.param(False, True, [ExtendedKeyUsageOID.CLIENT_AUTH], id="client"),
        pytest.param(
            True,
            True,
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
            id="both, as etcd's",
        ),
    ],
)
def test_a_certificate_is_good_for_the_planned_ends_only(
    authority: certificates.Authority,
    tmp_path: pathlib.Path,
    is_server: bool,
    is_client: bool,
    expected: list[x509.ObjectIdentifier],
) -> None:
    plan = certificates.Plan("one", "one", is_server=is_server, is_client=is_client)
    found = read(certificates.issue(authority, plan, tmp_path))
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == expected


def test_an_authority_read_back_signs_what_its_certificate_verifies(
    authority: certificates.Authority, tmp_path: pathlib.Path
) -> None:
    certificate, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    certificates.write_authority(authority, certificate, key)
    again = certificates.load_authority(certificate, key)
    found = read(certificates.issue(again, PLAN, tmp_path))
    found.verify_directly_issued_by(authority.certificate)


def test_keys_are_private_and_loadable(
    authority: certificates.Authority, tmp_path: pathlib.Path
) -> None:
    issued = certificates.issue(authority, PLAN, tmp_path)
    assert stat.S_IMODE(issued.key.stat().st_mode) == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(issued.certificate, issued.key)


def test_the_authority_s_key_is_not_written_unless_asked_for(
    authority: certificates.Authority, tmp_path: pathlib.Path
) -> None:
    certificates.write_authority(authority, tmp_path / "ca.crt", None)
    assert [path.name for path in tmp_path.iterdir()] == ["ca.crt"]
