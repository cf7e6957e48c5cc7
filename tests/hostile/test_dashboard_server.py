"""Attacks over HTTP on a server that needs no cluster: the dashboard of a file."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from tests.hostile.pipelining import send_all, send_unread
from tests.hostile.programs import Server

GIGABYTE = 1 << 30

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
"""


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve the dashboard of one node."""
    file = tmp_path_factory.mktemp("dashboard") / "node.yaml"
    file.write_text(NODE)
    listen = "127.0.0.1:{port}"
    with Server("dashboard", "-f", file, "--listen", listen, "--no-browser", probe="/") as server:
        yield server


def test_a_head_without_an_end_is_refused(dashboard: Server) -> None:
    """Endless header lines use no memory and delay no other client."""
    before = dashboard.rss_mib()
    line = b"X-Fill: " + b"a" * 4000 + b"\r\n"
    with dashboard.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        try:
            for _ in range(5000):
                connection.sendall(line)
        except OSError:
            pass  # cut
        else:
            pytest.fail("20 MB of a head were taken")
    assert dashboard.answers("/")
    assert dashboard.rss_mib() - before < 50


def test_requests_sent_ahead_of_their_answers_take_no_memory(dashboard: Server) -> None:
    """One client reads no answers, another sends as fast as it gets them.

    Neither takes memory, and probes are answered meanwhile.
    """
    before = dashboard.rss_mib()
    with dashboard.connect() as unread, dashboard.connect() as read:
        assert send_unread(unread, GIGABYTE) < 32 << 20
        assert dashboard.answers("/")
        assert dashboard.rss_mib() - before < 50
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send_all, read, GIGABYTE // 4)
            answered = 0
            while not sending.done():
                assert dashboard.answers("/")
                assert dashboard.rss_mib() - before < 50
                answered += 1
                wait([sending], 1)
        assert sending.result() >= GIGABYTE // 4
        assert answered > 0
