"""Questions to scheduler extenders over HTTP and TLS.

A question has one deadline, whatever the service does with it: dripping out an answer byte by byte
does not prolong it.  Redirects are not followed.

Source: kubernetes pkg/scheduler/extender.go ``makeTransport`` and ``send``.
"""

import http.client
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from tempfile import NamedTemporaryFile
from typing import Final, Self
from urllib.parse import urlsplit

from koordinator.api.kubescheduler import Extender, ExtenderTLSConfig
from koordinator.foundation.errors import ExtenderError, InputError, SilentExtenderError
from koordinator.foundation.text import one_line

DEFAULT_TIMEOUT_S: Final = 5.0
LARGEST_ANSWER: Final = 128 << 20
_SHOWN: Final = 200  # characters of a refusal


class HttpExtenderTransport:
    """Posts to ``<urlPrefix>/<verb>``; one connection is kept open between questions."""

    def __init__(self, config: Extender, on_answer: Callable[[], None] = lambda: None) -> None:
        """``on_answer`` is called after each answer, successful or not.

        Raises InputError for an invalid URL or invalid certificates.
        """
        url = urlsplit(config.url_prefix)
        self._path = url.path.rstrip("/")
        self._timeout_s = config.http_timeout.total_seconds() or DEFAULT_TIMEOUT_S
        self._on_answer = on_answer
        address, port = url.hostname or "", url.port
        if url.scheme == "https":
            context, server_name = _tls(config)
            self._connection: http.client.HTTPConnection = _NamedServer(
                address, port, timeout=self._timeout_s, context=context, server_name=server_name
            )
        else:
            self._connection = http.client.HTTPConnection(address, port, timeout=self._timeout_s)

    def post(self, verb: str, body: bytes) -> bytes:
        """Return the answer.

        Raises ExtenderError for one that is no success, SilentExtenderError if there is none.
        """
        is_kept = self._connection.sock is not None
        try:
            return self._exchange(verb, body)
        except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError) as error:
            if not is_kept:
                raise _silence(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _silence(error) from None
        finally:
            self._on_answer()
        try:  # a connection that was kept may have been closed just then
            return self._exchange(verb, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _silence(error) from None
        finally:
            self._on_answer()

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, verb: str, body: bytes) -> bytes:
        connection, is_late = self._connection, threading.Event()
        watchdog = threading.Timer(self._timeout_s, self._cut, (is_late,))
        watchdog.daemon = True
        watchdog.start()
        try:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request("POST", f"{self._path}/{verb.lstrip('/')}", body, headers)
            answer = connection.getresponse()
            text = answer.read(LARGEST_ANSWER)
            is_larger = bool(answer.read(1))
            is_cut = not is_larger and bool(answer.length)
            answer.close()
        except BaseException as error:
            connection.close()
            if is_late.is_set() and isinstance(error, OSError | http.client.HTTPException):
                raise TimeoutError(f"no answer in {self._timeout_s:g} s") from None
            raise
        finally:
            watchdog.cancel()
        if is_late.is_set():  # cut off while its end was read: what is there may be half of it
            connection.close()
            raise TimeoutError(f"no answer in {self._timeout_s:g} s")
        if is_cut:
            connection.close()
            raise http.client.IncompleteRead(text)
        if is_larger:
            connection.close()
            raise ExtenderError(f"answer larger than {LARGEST_ANSWER} bytes")
        if answer.status != http.client.OK:
            raise ExtenderError(f"{answer.status} {_line(text)}".rstrip())
        return text

    def _cut(self, is_late: threading.Event) -> None:
        """End a question that takes too long, in the thread of the watchdog."""
        is_late.set()
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)


class _NamedServer(http.client.HTTPSConnection):
    """HTTPS connection with a server name (SNI) other than its address."""

    def __init__(
        self,
        host: str,
        port: int | None,
        *,
        timeout: float,
        context: ssl.SSLContext,
        server_name: str,
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._named, self._tls = server_name or host, context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._named)


def unverified(config: Extender) -> bool:
    """Return whether the certificate is not verified, as in the original without a CA."""
    tls = config.tls_config or ExtenderTLSConfig()
    return tls.insecure or (config.enable_https and not (tls.ca_file or tls.ca_data))


def _tls(config: Extender) -> tuple[ssl.SSLContext, str]:
    """Return the context and the name that the server shall have.  Raises InputError."""
    tls = config.tls_config or ExtenderTLSConfig()
    context = ssl.create_default_context()
    if tls.insecure and (tls.ca_file or tls.ca_data):
        raise InputError(
            "must not be true when a certificate authority is set",
            path="tlsConfig.insecure",
        )
    if unverified(config):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if tls.ca_data:
            context.load_verify_locations(cadata=tls.ca_data.decode("ascii"))
        elif tls.ca_file:
            context.load_verify_locations(cafile=tls.ca_file)
    except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
        raise InputError(f"certificate authority: {error}", path="tlsConfig") from None
    _load_pair(context, tls)
    return context, tls.server_name


def _load_pair(context: ssl.SSLContext, tls: ExtenderTLSConfig) -> None:
    certificate, key = tls.cert_data or tls.cert_file, tls.key_data or tls.key_file
    if bool(certificate) is not bool(key):
        raise InputError("must have both a client certificate and its key", path="tlsConfig")
    if not certificate or not key:
        return
    try:
        with _OnDisk(certificate) as cert_file, _OnDisk(key) as key_file:
            context.load_cert_chain(cert_file.name, key_file.name)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"client certificate: {error}", path="tlsConfig") from None


class _OnDisk:
    """A file, or data in a file that only we can read, for the standard library wants files."""

    def __init__(self, source: bytes | str) -> None:
        self._source = source
        self._file = NamedTemporaryFile() if isinstance(source, bytes) else None  # noqa: SIM115 -- closed below

    def __enter__(self) -> Self:
        if self._file is not None and isinstance(self._source, bytes):
            self._file.write(self._source)
            self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def name(self) -> str:
        return self._file.name if self._file is not None else str(self._source)


def _silence(error: Exception) -> SilentExtenderError:
    return SilentExtenderError(_line(str(error)) or type(error).__name__)


def _line(text: bytes | str) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return one_line(shown, _SHOWN)
