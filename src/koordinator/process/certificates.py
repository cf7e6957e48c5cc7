"""Certificates of a server, reloaded when they change, and its TLS versions and ciphers.

Source: k8s.io/component-base cli/flag/ciphersuites_flag.go; k8s.io/apiserver
pkg/server/options/serving.go ``MaybeDefaultWithSelfSignedCerts`` and
pkg/server/dynamiccertificates.
"""

import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.files import open_private
from koordinator.foundation.lazy_dataclass import dataclass

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
#: Suites of TLS 1.3, which are always enabled, as in Go.
_SUITES_OF_1_3: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)

_MADE_WITHIN_S = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """Minimum version, and cipher suites of TLS 1.2 in OpenSSL's names; empty: its default."""

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    suites: str = ""

    @staticmethod
    def parse(minimum: str, suites_text: str) -> "TlsTerms":
        """Parse --tls-min-version and --tls-cipher-suites.  Raises InputError."""
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


_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its unencrypted private key, both PEM."""

    certificate: bytes
    key: bytes


def context_of_files(
    certificate: Path, key: Path, terms: TlsTerms = DEFAULT_TERMS
) -> ssl.SSLContext:
    """Return a server's context that follows the two PEM files (chain, private key).

    They are checked with every handshake.  A pair that can't be loaded, such as a certificate whose
    key is still to come, leaves the old pair in use.
    Raises InputError naming the file if they can't be loaded to begin with.
    """
    return _following(_Files(certificate, key, terms), terms)


def context_of_directory(
    directory: Path,
    pair_name: str,
    names: Sequence[str],
    clock: Clock,
    terms: TlsTerms = DEFAULT_TERMS,
) -> ssl.SSLContext:
    """Return a context of ``<pair_name>.crt`` and ``.key`` in a directory.

    If neither exists, a self-signed pair is written there first.
    Raises InputError if files can't be read or written, or if there is only one of the two.
    """
    certificate, key = directory / f"{pair_name}.crt", directory / f"{pair_name}.key"
    if certificate.exists() != key.exists():
        existing, missing = (certificate, key) if certificate.exists() else (key, certificate)
        raise InputError(f"missing, although {existing} is there", source=str(missing))
    if not key.exists():
        _write_pair(certificate, key, names, clock)
    return context_of_files(certificate, key, terms)


def self_signed_context(
    names: Sequence[str], clock: Clock, terms: TlsTerms = DEFAULT_TERMS
) -> ssl.SSLContext:
    """Return a context with a new certificate for the host names and addresses, in memory only."""
    pair = _make(names, clock)
    return _context_of(pair, terms)


class ReplaceableContext:
    """A context whose pair can be replaced while it serves; the next handshake has the new one."""

    def __init__(self, pair: Pair, client_ca: Path | None = None, *, proxy_ca: bytes = b"") -> None:
        """Require client certificates of ``client_ca`` (PEM), if it is given.

        ``proxy_ca`` (PEM) are authorities of certificates that a client may show, or show none.
        Raises InputError naming the file if it can't be loaded.
        """
        self._client_ca = client_ca
        self._current = _context_of(pair)
        self.context = _server_context(DEFAULT_TERMS)
        for context in (self._current, self.context):
            _require_client_certificates(context, client_ca)
            _trust_proxy_ca(context, proxy_ca)
        self.context.sni_callback = self._choose

    def replace(self, pair: Pair, *, proxy_ca: bytes = b"") -> None:
        """Show this certificate from now on, and read the file of ``client_ca`` again.

        One that can't be loaded, such as a file that is being written, leaves all as it was.
        """
        context = _context_of(pair)
        try:
            _require_client_certificates(context, self._client_ca)
            _trust_proxy_ca(context, proxy_ca)
        except InputError as error:
            log.warning("certificates of clients not reloaded", extra={"error": error})
        else:
            self._current = context

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str, _: ssl.SSLContext
    ) -> None:
        connection.context = self._current


def _context_of(pair: Pair, terms: TlsTerms = DEFAULT_TERMS) -> ssl.SSLContext:
    context = _server_context(terms)
    # OpenSSL loads files only, and the root file system may be read-only.
    descriptor = os.memfd_create("serving-certificate")
    try:
        os.write(descriptor, pair.certificate + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


def _require_client_certificates(context: ssl.SSLContext, client_ca: Path | None) -> None:
    if client_ca is None:
        return
    try:
        context.load_verify_locations(cafile=client_ca)
    except ssl.SSLError as error:
        problem = f"no PEM certificates: {error.reason}"
        raise InputError(problem, source=str(client_ca)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(client_ca)) from None
    context.verify_mode = ssl.CERT_REQUIRED


def _trust_proxy_ca(context: ssl.SSLContext, proxy_ca: bytes) -> None:
    if not proxy_ca:
        return
    try:
        context.load_verify_locations(cadata=proxy_ca.decode("ascii", "replace"))
    except ssl.SSLError as error:
        problem = f"no PEM certificates: {error.reason}"
        raise InputError(problem, source="the authorities of front proxies") from None
    context.verify_mode = ssl.CERT_OPTIONAL


class _Files:
    """The two files, and the context with their last valid content."""

    def __init__(self, certificate: Path, key: Path, terms: TlsTerms) -> None:
        self._certificate, self._key, self._terms = certificate, key, terms
        self._stamp = self._read_stamp()
        self._context = self._load()

    def current(self) -> ssl.SSLContext:
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return self._context
        self._stamp = stamp  # before loading: what changes meanwhile is loaded the next time
        try:
            self._context = self._load()
        except InputError as error:
            log.warning("certificate not reloaded", extra={"error": error})
        else:
            log.info("certificate reloaded", extra={"file": self._certificate})
        return self._context

    def _read_stamp(self) -> _Stamp:
        try:
            stats = [path.stat() for path in (self._certificate, self._key)]
        except OSError:
            return ()
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)

    def _load(self) -> ssl.SSLContext:
        context = _server_context(self._terms)
        try:
            for path in (self._certificate, self._key):
                path.read_bytes()  # OpenSSL doesn't say which of the two it can't read
            context.load_cert_chain(self._certificate, self._key)
        except ssl.SSLError as error:
            problem = f"no PEM certificate with its key in {self._key}: {error.reason}"
            raise InputError(problem, source=str(self._certificate)) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", source=error.filename) from None
        return context


def _following(files: _Files, terms: TlsTerms) -> ssl.SSLContext:
    def choose(connection: ssl.SSLSocket | ssl.SSLObject, _name: str, _: ssl.SSLContext) -> None:
        connection.context = files.current()

    context = _server_context(terms)
    context.sni_callback = choose  # called with every handshake, whether a server is named or not
    return context


def _server_context(terms: TlsTerms) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    terms.apply(context)
    context.options |= ssl.OP_NO_RENEGOTIATION  # which costs a server much more than its client
    return context


def _write_pair(certificate: Path, key: Path, names: Sequence[str], clock: Clock) -> None:
    pair = _make(names, clock)
    try:
        certificate.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_private(key, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(pair.key)
        certificate.write_bytes(pair.certificate)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=error.filename) from None
    log.info("certificate made", extra={"file": certificate})


def _make(names: Sequence[str], clock: Clock) -> Pair:
    """Create a pair in a subprocess: the library would keep 12 MiB of memory."""
    command = [
        sys.executable,
        "-m",
        "koordinator.process.serving_secret",
        str(clock.now_s()),
        *names,
    ]
    try:
        made = subprocess.run(  # noqa: S603 -- this program, with names of our own
            command, stdout=subprocess.PIPE, check=True, timeout=_MADE_WITHIN_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BugError(f"no certificate could be made: {error}") from None
    certificate, begin, key = made.stdout.partition(b"-----BEGIN PRIVATE KEY-----")
    return Pair(certificate, begin + key)
