"""Settings of the HTTP and HTTPS servers of a component's pages.

They are apart from the servers, whose libraries take a while to load.
"""

from pathlib import Path

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.certificates import DEFAULT_TERMS, TlsTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Settings of the page servers; ``plain`` is host and port of the server without TLS."""

    plain: tuple[str, int] | None
    secure_port: int
    bind_address: str
    certificate: Path | None
    key: Path | None
    always_allowed: tuple[str, ...]
    terms: TlsTerms = DEFAULT_TERMS

    @staticmethod
    def parse(
        *,
        plain: tuple[str, int] | None,
        secure_port: int,
        bind_address: str,
        tls_cert_file: Path | None,
        tls_private_key_file: Path | None,
        tls_min_version: str = "",
        tls_cipher_suites: str = "",
        authorization_always_allow_paths: str,
    ) -> "PageSettings":
        """Return the settings of flags.  Raises InputError for contradictory flags."""
        if bool(tls_cert_file) is not bool(tls_private_key_file):
            raise InputError(
                "must be set together", source="--tls-cert-file, --tls-private-key-file"
            )
        return PageSettings(
            plain=plain,
            secure_port=secure_port,
            bind_address=bind_address,
            certificate=tls_cert_file,
            key=tls_private_key_file,
            always_allowed=tuple(filter(None, authorization_always_allow_paths.split(","))),
            terms=TlsTerms.parse(tls_min_version, tls_cipher_suites),
        )
