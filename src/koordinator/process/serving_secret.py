"""Serving certificates: one that all replicas share in a Secret, and a self-signed one.

Who trusts it is given the certificate itself, and the one before it, so that a replica that still
shows the old one is trusted, too.

Source: koordinator pkg/webhook/util/generator/selfsigned.go, util/writer/secret.go; client-go
util/cert/cert.go ``GenerateSelfSignedCertKey``: one year, from an hour ago on.
"""

import binascii
import datetime as dt
import logging
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

from koordinator.api.core import Secret
from koordinator.api.meta import ObjectMeta
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import AlreadyExistsError, ConflictError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.certificates import Pair

SELF_SIGNED_LIFETIME = dt.timedelta(days=365)
CLOCK_SKEW = dt.timedelta(hours=1)
LIFETIME = dt.timedelta(days=3650)
RENEWED_BEFORE = dt.timedelta(days=182)
_CERTIFICATE, _KEY, _TRUSTED = "cert.pem", "key.pem", "ca-cert.pem"

log = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class ServingPair:
    """A pair, and the PEM certificates by which clients know the servers."""

    pair: Pair
    trusted: bytes


class ServingSecret:
    """Serving certificate in a Secret, read again on each call."""

    def __init__(
        self, cluster: Cluster, clock: Clock, namespace: str, name: str, names: Sequence[str]
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._namespace, self._name = namespace, name
        self._names = tuple(names)

    def current(self) -> ServingPair:
        """Return the pair to serve with; makes a new one if there is none, or it ends soon.

        Of several replicas that do so at once the first one's counts.  Raises ClusterError.
        """
        secret = self._read()
        stored = read_pair(secret) if secret is not None else None
        if stored is not None and self._is_good(stored.pair):
            return stored
        made = self_signed(self._names, self._clock.now_s(), LIFETIME)
        before = stored.pair.certificate if stored is not None else b""
        wanted = ServingPair(made, made.certificate + before)
        try:
            self._write(secret, wanted)
        except (AlreadyExistsError, ConflictError):
            return self.current()
        log.info("serving certificate made", extra={"secret": f"{self._namespace}/{self._name}"})
        return wanted

    def _read(self) -> Secret | None:
        try:
            return self._cluster.get(Secret, self._name, self._namespace)
        except NotFoundError:
            return None

    def _write(self, old: Secret | None, wanted: ServingPair) -> None:
        data = {
            _CERTIFICATE: wanted.pair.certificate,
            _KEY: wanted.pair.key,
            _TRUSTED: wanted.trusted,
        }
        encoded = {name: b64encode(each).decode() for name, each in data.items()}
        if old is None:
            meta = ObjectMeta(name=self._name, namespace=self._namespace)
            self._cluster.create(Secret(metadata=meta, data=encoded))
        else:
            self._cluster.update(replace(old, data={**old.data, **encoded}))

    def _is_good(self, pair: Pair) -> bool:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        ends = certificate.not_valid_after_utc
        if to_datetime(self._clock.now_s()) > ends - RENEWED_BEFORE:
            return False
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        known = {str(each.value) for each in extension.value}
        return known >= set(self._names)


def read_pair(secret: Secret) -> ServingPair | None:
    """Return the pair in a Secret, None if it has none."""
    try:
        parts = [b64decode(secret.data[name]) for name in (_CERTIFICATE, _KEY, _TRUSTED)]
        x509.load_pem_x509_certificate(parts[0])
    except (KeyError, ValueError, binascii.Error):
        return None
    return ServingPair(Pair(parts[0], parts[1]), parts[2])


def self_signed(
    names: Sequence[str], now_s: float, lifetime: dt.timedelta = SELF_SIGNED_LIFETIME
) -> Pair:
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


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


if __name__ == "__main__":  # for who doesn't want to load this: the time, then the names
    made = self_signed(sys.argv[2:], float(sys.argv[1]))
    sys.stdout.buffer.write(made.certificate + made.key)
