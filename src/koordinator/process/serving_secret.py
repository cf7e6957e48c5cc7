"""A serving certificate that all replicas share: made by one, kept in a Secret, renewed in time.

Who trusts it is given the certificate itself, and the one before it, so that a replica that still
shows the old one is trusted, too.
Source: koordinator pkg/webhook/util/generator/selfsigned.go, util/writer/secret.go.
"""

import binascii
import datetime as dt
import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from msgspec.structs import replace

from koordinator.api.core import Secret
from koordinator.api.meta import ObjectMeta
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import AlreadyExistsError, ConflictError, NotFoundError
from koordinator.process.certificates import Pair
from koordinator.process.self_signed import self_signed

LIFETIME = dt.timedelta(days=3650)
RENEWED_BEFORE = dt.timedelta(days=182)
_CERTIFICATE, _KEY, _TRUSTED = "cert.pem", "key.pem", "ca-cert.pem"

log = logging.getLogger(__name__)


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
    """Return what a Secret holds, None if that is no pair."""
    try:
        parts = [b64decode(secret.data[name]) for name in (_CERTIFICATE, _KEY, _TRUSTED)]
        x509.load_pem_x509_certificate(parts[0])
    except (KeyError, ValueError, binascii.Error):
        return None
    return ServingPair(Pair(parts[0], parts[1]), parts[2])
