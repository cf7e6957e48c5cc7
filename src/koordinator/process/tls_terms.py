"""Minimum TLS version and cipher suites of a server, from the flags of Kubernetes.

Source: k8s.io/component-base cli/flag/ciphersuites_flag.go.
"""

import ssl
from dataclasses import dataclass
from typing import Final

from koordinator.foundation.errors import InputError

_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
#: OpenSSL's names of the suites of TLS 1.2 by those that Go gives them.
_SUITES: Final = {
    f"TLS_{exchange.replace('-', '_')}_WITH_{cipher}": f"{exchange}-{name}"
    for exchange in ("ECDHE-ECDSA", "ECDHE-RSA")
    for cipher, name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
}
#: Always there with TLS 1.3, as in Go.
_SUITES_OF_1_3: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """The oldest version, and the suites of TLS 1.2 in OpenSSL's words; empty: its own choice."""

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    suites: str = ""

    @staticmethod
    def parse(minimum: str, suites_text: str) -> "TlsTerms":
        """Return what --tls-min-version and --tls-cipher-suites say.  Raises InputError."""
        suites = [name for part in suites_text.split(",") if (name := part.strip())]
        if minimum not in _VERSIONS:
            accepted = "VersionTLS12 or VersionTLS13"
            raise InputError(f"must be {accepted}, got {minimum!r}", source="--tls-min-version")
        unknown = [name for name in suites if name not in _SUITES and name not in _SUITES_OF_1_3]
        if unknown:
            accepted = ", ".join((*_SUITES, *_SUITES_OF_1_3))
            raise InputError(
                f"must be one of {accepted}, got {unknown[0]!r}", source="--tls-cipher-suites"
            )
        older = [_SUITES[name] for name in suites if name in _SUITES]
        version = ssl.TLSVersion.TLSv1_3 if suites and not older else _VERSIONS[minimum]
        return TlsTerms(version, ":".join(dict.fromkeys(older)))

    def apply(self, context: ssl.SSLContext) -> None:
        """Set minimum version and cipher suites of a context."""
        context.minimum_version = self.minimum
        if self.suites:
            context.set_ciphers(self.suites)


DEFAULT_TERMS: Final = TlsTerms()
