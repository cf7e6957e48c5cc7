"""A certificate for a server that was given none.  Clients can't verify it but by pinning it.

Source: client-go util/cert/cert.go ``GenerateSelfSignedCertKey``: one year, from an hour ago on.
"""

import datetime as dt
import sys
from collections.abc import Sequence
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koordinator.foundation.clock import to_datetime
from koordinator.process.certificates import Pair

LIFETIME = dt.timedelta(days=365)
CLOCK_SKEW = dt.timedelta(hours=1)


def self_signed(names: Sequence[str], now_s: float, lifetime: dt.timedelta = LIFETIME) -> Pair:
    """Return a new P-256 pair for the host names and IP addresses; the first gives its name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"{names[0]}@{int(now_s)}")],
    )
    start = to_datetime(now_s) - CLOCK_SKEW
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_USAGE, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,  # of itself: who pins it as an authority expects that
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


if __name__ == "__main__":  # for who doesn't want to load this: the time, then the names
    made = self_signed(sys.argv[2:], float(sys.argv[1]))
    sys.stdout.buffer.write(made.certificate + made.key)
