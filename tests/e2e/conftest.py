"""One real control plane for all end-to-end tests; objects live as long as the test."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from tests.e2e.controlplane import ControlPlane, binaries
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.leftovers import Leftovers

_LOGS = pytest.StashKey[Callable[[], list[tuple[str, str]]]]()


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane that has Koordinator's CRDs and no nodes."""
    _build(request, "kube-apiserver")
    with ControlPlane(tmp_path_factory.mktemp("controlplane"), audited=True) as running:
        koord = Path(sys.executable).with_name("koord")
        crds = subprocess.run([koord, "crds"], stdout=subprocess.PIPE, text=True, check=True)
        running.kubectl("apply", "--server-side", "--filename=-", stdin=crds.stdout)
        running.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
        yield running


@pytest.fixture(scope="session")
def leftovers(controlplane: ControlPlane) -> Leftovers:
    """Find what is neither a CRD of ours nor an object of Kubernetes' own."""
    return Leftovers(controlplane.api)


@pytest.fixture(autouse=True)
def _left_as_found(
    request: pytest.FixtureRequest, controlplane: ControlPlane, leftovers: Leftovers
) -> Iterator[None]:
    """Whatever a test creates or breaks, the next one starts from the same cluster."""
    starts = {it.log_path: it.log_size() for it in controlplane.programs.values()}
    request.node.stash[_LOGS] = lambda: [
        (f"end of {it.name}'s log", it.log_tail(starts.get(it.log_path, 0)))
        for it in controlplane.programs.values()
    ]
    yield
    controlplane.heal()
    leftovers.clear()


@pytest.fixture
def namespace(controlplane: ControlPlane) -> str:
    """Create a namespace and return its name."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def kubelet(controlplane: ControlPlane) -> Iterator[FakeKubelet]:
    """Plays every node that the test creates."""
    with FakeKubelet(controlplane.api) as playing:
        yield playing


@pytest.fixture
def kubectl(controlplane: ControlPlane) -> Callable[..., str]:
    """``kubectl("get", "pods", stdin=None)`` as the admin; raises if it fails."""
    return controlplane.kubectl


@pytest.fixture
def helm(request: pytest.FixtureRequest, controlplane: ControlPlane) -> Callable[..., str]:
    """``helm("template", "charts/koordinator")`` as the admin; raises if it fails."""
    _build(request, "helm")
    return controlplane.helm


def _build(request: pytest.FixtureRequest, program: str) -> None:
    """Let people see that it will take minutes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        binaries.find(program)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the control plane logged meanwhile."""
    report = yield
    if report.failed and _LOGS in item.stash:
        report.sections.extend(item.stash[_LOGS]())
    return report
