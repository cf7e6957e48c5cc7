"""A certificate authority of our own, so that clients check TLS as they would in a cluster."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_FROM = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_VALID_TO = dt.datetime(2124, 1, 1, tzinfo=dt.UTC)


class Authority:
    """Signs as ``ca.crt`` in a folder and writes there ``<name>.crt`` and ``<name>.key``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "koordinator-e2e")])
        ca = self._unsigned(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._write("ca", ca.sign(self._key, hashes.SHA256()), self._key)

    @property
    def ca_path(self) -> Path:
        """The certificate by which clients know the servers, and servers their clients."""
        return self.folder / "ca.crt"

    def issue_server(self, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
        """Write certificate and key of a server at these names and addresses."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(name, subject, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """Write certificate and key by which Kubernetes knows a user and its groups."""
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        file_name = "client-" + "-".join((user, *groups)).replace(":", "_").replace("/", "_")
        return self._issue(file_name, subject, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self,
        file_name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._unsigned(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names is not None:
            certificate = certificate.add_extension(names, critical=False)
        return self._write(file_name, certificate.sign(self._key, hashes.SHA256()), key)

    def _unsigned(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_VALID_FROM)
            .not_valid_after(_VALID_TO)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        )

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> tuple[Path, Path]:
        certificate_path, key_path = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate_path, key_path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
