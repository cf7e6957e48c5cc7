"""A server shows the user's certificate, the newest one; or makes one."""

import datetime as dt
import os
import ssl
import tempfile
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.process.certificates import (
    Pair,
    TlsTerms,
    context_of_directory,
    context_of_files,
    self_signed_context,
)
from koordinator.process.serving_secret import self_signed

NAMES = ("localhost", "127.0.0.1", "::1")
NOW_S = 1_700_000_000.0


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext | None = None, name: str | None = "localhost"
) -> bytes:
    """Return the certificate (DER) that a client is shown, without any network."""
    if client is None:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    ends = [here, there]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    shown = here.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


def put(pair: Pair, directory: Path) -> tuple[Path, Path]:
    """Replace both files as a whole, as Kubernetes does with a mounted secret."""
    paths = directory / "tls.crt", directory / "tls.key"
    for path, content in zip(paths, (pair.certificate, pair.key), strict=True):
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)
    return paths


def pair() -> Pair:
    return self_signed(NAMES, SystemClock().now_s())


@pytest.mark.parametrize("name", ["localhost", None])
def test_a_certificate_is_replaced_without_a_restart(tmp_path: Path, name: str | None) -> None:
    """The next handshake shows the new one; a kubelet names no server, it has an address."""
    old, new = pair(), pair()
    context = context_of_files(*put(old, tmp_path))
    assert handshake(context, name=name) == der(old)

    put(new, tmp_path)
    assert handshake(context, name=name) == der(new)


def test_half_a_pair_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The old pair serves until the new one is complete, with one warning."""
    old, new = pair(), pair()
    certificate, key = put(old, tmp_path)
    context = context_of_files(certificate, key)

    certificate.write_bytes(new.certificate)
    assert handshake(context) == handshake(context) == der(old)
    assert [record.message for record in caplog.records] == ["certificate not reloaded"]
    assert "KEY_VALUES_MISMATCH" in str(vars(caplog.records[0])["error"])

    key.write_bytes(new.key)
    assert handshake(context) == der(new)


def test_a_deleted_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The loaded pair keeps serving, with one warning."""
    old = pair()
    certificate, key = put(old, tmp_path)
    context = context_of_files(certificate, key)
    certificate.unlink()

    assert handshake(context) == handshake(context) == der(old)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("content", [b"", b"no certificate"])
def test_a_wrong_file_is_refused_at_the_start(tmp_path: Path, content: bytes) -> None:
    """The text names the file."""
    certificate, key = put(pair(), tmp_path)
    certificate.write_bytes(content)

    with pytest.raises(InputError, match=rf"{certificate}: no PEM certificate"):
        context_of_files(certificate, key)


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    """Of the two, the text names the one that is missing."""
    certificate, key = put(pair(), tmp_path)
    key.unlink()

    with pytest.raises(InputError, match=rf"{key}: cannot be read: No such file"):
        context_of_files(certificate, key)


@pytest.fixture
def old_client() -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        client.maximum_version = ssl.TLSVersion.TLSv1_1
    return client


def test_old_tls_is_refused(old_client: ssl.SSLContext) -> None:
    """1.2 is the least, as in Kubernetes."""
    with pytest.raises(ssl.SSLError):
        handshake(self_signed_context(NAMES, SystemClock()), old_client)


def test_a_self_signed_certificate_can_be_pinned() -> None:
    """A client that trusts just this one verifies it as strictly as OpenSSL can."""
    made = pair()
    client = ssl.create_default_context(cadata=made.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = f"/proc/self/fd/{(descriptor := os.memfd_create('pair'))}"
    os.write(descriptor, made.certificate + made.key)
    server.load_cert_chain(path)
    os.close(descriptor)

    assert handshake(server, client) == der(made)


def test_a_self_signed_certificate_names_the_server_for_a_year() -> None:
    """From an hour ago on, for clients whose clock is behind."""
    certificate = x509.load_pem_x509_certificate(self_signed(NAMES, NOW_S).certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    start = dt.datetime.fromtimestamp(NOW_S - 3600, dt.UTC)

    assert certificate.subject.rfc4514_string() == "CN=localhost@1700000000"
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address(n) for n in NAMES[1:]]
    assert certificate.not_valid_before_utc == start
    assert certificate.not_valid_after_utc == start + dt.timedelta(days=365)


def test_a_certificate_without_files_needs_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root file system of a container may be read-only; no file is left open either."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    assert handshake(self_signed_context(NAMES, SystemClock()))

    assert len(list(descriptors.iterdir())) == before


def test_a_directory_keeps_the_certificate_that_was_made(tmp_path: Path) -> None:
    """After a restart clients see the same one; only the owner reads the key."""
    directory = tmp_path / "certificates"
    first = handshake(context_of_directory(directory, "koord", NAMES, SystemClock()))
    second = handshake(context_of_directory(directory, "koord", NAMES, SystemClock()))

    assert first == second
    assert (directory / "koord.key").stat().st_mode & 0o777 == 0o600


def test_a_directory_with_one_of_two_files_is_refused(tmp_path: Path) -> None:
    """Nothing of the user's is overwritten."""
    (tmp_path / "koord.key").write_bytes(pair().key)

    with pytest.raises(InputError, match=r"koord\.crt: missing, although .*koord\.key is there"):
        context_of_directory(tmp_path, "koord", NAMES, SystemClock())


def client_of(version: ssl.TLSVersion, ciphers: str = "") -> ssl.SSLContext:
    """Return a client that speaks one version of TLS and verifies no certificate."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.minimum_version = client.maximum_version = version
    if ciphers:
        client.set_ciphers(ciphers)
    return client


@pytest.mark.parametrize("is_of_files", [False, True])
def test_flags_set_version_and_suites_of_tls(is_of_files: bool, tmp_path: Path) -> None:
    """The oldest version, and the suites of 1.2 in the words of Go, whatever the certificate."""

    def server(minimum: str, *suites: str) -> ssl.SSLContext:
        terms = TlsTerms.parse(minimum, ",".join(suites))
        if is_of_files:
            return context_of_files(*put(pair(), tmp_path), terms)
        return self_signed_context(NAMES, SystemClock(), terms)

    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    one = server("", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    assert handshake(one, client_of(old, "ECDHE-ECDSA-AES128-GCM-SHA256"))
    assert handshake(one, client_of(new))
    for refused, client in (
        (one, client_of(old, "ECDHE-ECDSA-AES256-GCM-SHA384")),
        (server("VersionTLS13"), client_of(old)),
        (server("VersionTLS12", "TLS_AES_128_GCM_SHA256"), client_of(old)),
    ):
        with pytest.raises(ssl.SSLError):
            handshake(refused, client)


@pytest.mark.parametrize(
    ("minimum", "suites", "problem"),
    [
        ("VersionTLS10", "", "--tls-min-version: must be VersionTLS12"),
        ("", "TLS_RSA_WITH_RC4_128_SHA", "--tls-cipher-suites: must be one of "),
    ],
)
def test_weak_tls_is_refused(minimum: str, suites: str, problem: str) -> None:
    """With what is accepted."""
    with pytest.raises(InputError, match=problem):
        TlsTerms.parse(minimum, suites)
