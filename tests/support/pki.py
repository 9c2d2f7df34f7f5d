"""A private authority for tests of mutual TLS, and certificates of it in a folder."""

import pathlib

from bitts.rpc import tls
from devcluster import certificates


class Authority:
    """Signs certificates and writes them below ``folder``. Blocks for some milliseconds each."""

    def __init__(self, folder: pathlib.Path, name: str = "ca") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / f"{name}.crt"
        self._authority = certificates.new_authority(name)
        certificates.write_authority(self._authority, self.certificate, None)

    def issue(self, *dns_names: str, file: str = "", client: bool = True) -> tls.Files:
        """Write a certificate for some names, for both ends of TLS; a second one replaces it."""
        plan = certificates.Plan(
            name=file or (dns_names[0] if dns_names else "nameless"),
            common_name=dns_names[0] if dns_names else "nameless",
            dns_names=dns_names,
            is_server=True,
            is_client=client,
        )
        issued = certificates.issue(self._authority, plan, self.folder)
        return tls.Files(str(issued.certificate), str(issued.key), str(self.certificate))
