"""The released image, run in its own file system without a container runtime."""

import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from release.pins import ROOT, read_pins
from tests.e2e.controlplane import kubeconfig
from tests.e2e.controlplane.certificates import Authority
from tests.e2e.image.conftest import Root

pytestmark = pytest.mark.integration

KOORD = Path(sys.executable).with_name("koord")
LIBRARIES = """
import pathlib, subprocess
loader, = pathlib.Path("/lib64").glob("ld-linux*")
for top in ("/usr/lib/python3.13", "/opt/koordinator"):
    for path in sorted(pathlib.Path(top).rglob("*.so*")):
        done = subprocess.run([loader, "--list", path], capture_output=True, text=True)
        if done.returncode or "not found" in done.stdout:
            print(path.name.partition(".")[0], done.stdout, done.stderr)
"""
#: Numba has a third pool of threads, which needs nothing; no kernel of ours is parallel.
OPTIONAL = frozenset({"omppool", "tbbpool"})
BYTE_CODE = """
import pathlib, sys
import koordinator.cli.koordlet.command, koordinator.cli.manager.command
import koordinator.cli.scheduler.command, numba
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
for path in {getattr(module, "__file__", None) or "" for module in sys.modules.values()}:
    if path.endswith(".py") and not pathlib.Path(path).is_symlink():
        head = MAGIC_NUMBER + bytes([1, 0, 0, 0]) + source_hash(pathlib.Path(path).read_bytes())
        if pathlib.Path(cache_from_source(path)).read_bytes()[:16] != head:
            print(path)
print("compared")
"""
CERTIFICATES = """
import ssl
print(len(ssl.create_default_context().get_ca_certs()))
"""


@pytest.fixture(autouse=True)
def _left_as_found() -> None:
    """Take the place of the fixture that cleans up a cluster: there is none here."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[str]:
    """Serve an API that forbids everything, over TLS, and return its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"kind": "Status", "code": 403, "message": "not for you"}).encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue_server("api", ["127.0.0.1"]))
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_image_runs_as_its_user(root: Root) -> None:
    """The user has a name, is not root, and may write to /tmp only."""
    code = "import getpass, os, tempfile; print(getpass.getuser(), os.getuid(), tempfile.mkdtemp())"
    done = root.run("python3", "-c", code)

    assert re.fullmatch(r"koordinator 65532 /tmp/\S+\n", done.stdout), done
    assert root.run("python3", "-c", "open('/etc/x', 'w')").returncode == 1


def test_programs_start_by_each_of_their_names(root: Root) -> None:
    """As the entry point, and as deployments of the original call them."""
    version = root.koord("version")

    assert (
        version.stdout
        == subprocess.run([KOORD, "version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    ), version
    assert "Usage: koord scheduler" in root.run("/koord-scheduler", "-h").stdout


def test_image_decides_as_the_source_does(root: Root) -> None:
    """Compiled kernels included."""
    manifests = ROOT / "examples/cluster.yaml"
    (root.folder / "tmp/cluster.yaml").write_bytes(manifests.read_bytes())
    there = root.koord("schedule", "-f", "/tmp/cluster.yaml", "-o", "json")  # noqa: S108 -- of the image
    here = subprocess.run(
        [KOORD, "schedule", "-f", manifests, "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert there.stdout == here.stdout, there.stderr
    assert '"n1"' in there.stdout


def test_each_library_finds_those_that_it_needs(root: Root) -> None:
    """Wheels expect a few of the system."""
    done = root.run("python3", "-c", LIBRARIES)

    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines() if line} <= OPTIONAL, done.stdout


def test_no_start_compiles_modules(root: Root) -> None:
    """Each module has byte code of its source, which Python takes without reading the source."""
    done = root.run("python3", "-c", BYTE_CODE)

    assert done.stdout == "compared\n", done


def test_programs_of_traffic_control_start(root: Root) -> None:
    """The node agent runs them, if its gate is on."""
    for command in ("tc -V", "ip -V", "ipset --version", "iptables --version"):
        done = root.run(*command.split())
        assert done.returncode == 0 or "ipset v" in done.stdout, done


def test_servers_make_their_certificate(root: Root) -> None:
    """In a process of its own, which finds the packages, too."""
    code = (
        "import subprocess, sys; subprocess.run([sys.executable, '-m',"
        " 'koordinator.process.serving_secret', '1800000000', 'localhost'], check=True)"
    )
    done = root.run("python3", "-c", code)

    assert "-----BEGIN CERTIFICATE-----" in done.stdout, done.stderr


def test_client_checks_certificates(root: Root, server: str, authority: Authority) -> None:
    """With the authority of the kubeconfig; another one is refused."""
    strange = Authority(authority.folder / "strange")
    answers = {}
    for name, ca in (("right", authority.ca_path), ("wrong", strange.ca_path)):
        file = kubeconfig.write(root.folder / "tmp" / name, server, ca, {"token": "t"})
        file.chmod(0o644)
        done = root.koord("doctor", "cluster", f"--kubeconfig=/tmp/{name}")
        answers[name] = done.stdout + done.stderr

    assert "not for you" in answers["right"]
    assert "its certificate cannot be verified" in answers["wrong"]
    assert "not for you" not in answers["wrong"]


def test_image_has_public_authorities(root: Root) -> None:
    """For exporters of traces and other servers outside of the cluster."""
    done = root.run("python3", "-c", CERTIFICATES)

    assert int(done.stdout) > 100, done.stderr


def test_image_records_its_packages(root: Root) -> None:
    """The list of packages is in the file that vulnerability scanners read."""
    records = root.folder / "var/lib/dpkg/status.d"
    recorded = {
        (record.name, *re.findall("^Version: (.*)$", record.read_text(), re.MULTILINE))
        for record in records.iterdir()
    }

    assert recorded == {(package.name, package.version) for package in read_pins("amd64")}
