"""Errors of connections are words: host, port and cause."""

import errno
import socket
import ssl

import pytest
from aiohttp.client_exceptions import ClientConnectorError
from aiohttp.client_reqrep import ConnectionKey

from koordinator.cluster.kubernetes.failures import read_status
from koordinator.cluster.kubernetes.transport import in_words

KEY = ConnectionKey("api", 6443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (
            OSError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 6443)"),
            "api:6443: Connection refused",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "api:6443: Name or service not known",
        ),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong (_ssl.c:1)"), "api:6443: no TLS: "),
    ],
)
def test_no_objects_of_python_are_printed(cause: OSError, words: str) -> None:
    """The text contains neither representations nor addresses of Python objects."""
    result = in_words(ClientConnectorError(KEY, cause))

    assert result.startswith(words)
    assert "<" not in result
    assert "(" not in result.removeprefix(words)[:1]


def test_a_page_is_not_printed() -> None:
    """A proxy or another server answered."""
    result = read_status(b"  <!DOCTYPE HTML><html><body>404</body></html>")

    assert result.message == "a page came instead of an object: is it an API server?"
