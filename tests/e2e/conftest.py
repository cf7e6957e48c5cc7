"""One real control plane for all end-to-end tests; objects live as long as the test."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.e2e import network
from tests.e2e.controlplane import ControlPlane, binaries
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.leftovers import Leftovers
from tests.e2e.real_node import RealNode, find_programs, missing
from tests.e2e.released_image import Image, build_image
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Tests of these folders change the machine itself (cgroups, its one container runtime), and are
#: run by one worker after the other, or share the release that it has built; all others stay
#: together by file, with their cluster.
ON_THE_MACHINE = frozenset({"host", "image", "koordlet", "node", "vgpu"})
#: Tests of these folders share servers that take long to start.
WITH_ONE_CLUSTER = frozenset({"suites", "yarn"})
_Logs = Callable[[], list[tuple[str, str]]]
_LOGS, _NODE_LOGS = pytest.StashKey[_Logs](), pytest.StashKey[_Logs]()


class ByServers(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist is not typed
    """Gives a worker all tests that share servers, one file or folder after the other.

    pytest-xdist has a mark for this, ``xdist_group`` with ``--dist loadgroup``; its 3.8 puts the
    group into node ids, which pytest 9.2 no longer permits, and then ignores groups.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = Path(file).parts[-2]
        if folder in ON_THE_MACHINE:
            return "machine"
        return folder if folder in WITH_ONE_CLUSTER else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByServers:
    """Share the tests among workers, if there are any."""
    return ByServers(config, log)


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane that has Koordinator's CRDs and no nodes."""
    with running_controlplane(request, tmp_path_factory.mktemp("controlplane")) as running:
        yield running


@contextmanager
def running_controlplane(
    request: pytest.FixtureRequest, state_dir: Path, flags: Sequence[str] = ()
) -> Iterator[ControlPlane]:
    """Run a control plane that has Koordinator's CRDs; ``flags`` are further ones of its server.

    Where root runs the tests it is in a network namespace of its own, as all that they start.
    """
    _build(request, "kube-apiserver")
    network.enter()
    with ControlPlane(state_dir, audited=True, apiserver_flags=flags) as running:
        koord = Path(sys.executable).with_name("koord")
        crds = subprocess.run([koord, "crds"], stdout=subprocess.PIPE, text=True, check=True)
        running.kubectl("apply", "--server-side", "--filename=-", stdin=crds.stdout)
        running.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=600s")
        yield running


@pytest.fixture(scope="session")
def leftovers(controlplane: ControlPlane) -> Leftovers:
    """Find what is neither a CRD of ours nor an object of Kubernetes' own."""
    return Leftovers(controlplane.api)


@pytest.fixture(autouse=True)
def _left_as_found(
    request: pytest.FixtureRequest, controlplane: ControlPlane, leftovers: Leftovers
) -> Iterator[None]:
    """Restore the cluster after each test."""
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


@pytest.fixture(scope="session")
def container_runtime(
    request: pytest.FixtureRequest,
    controlplane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealNode]:
    """Run containerd with NRI; the node that it belongs to has no kubelet yet."""
    problem = missing() or ("" if network.enter() else "a real node needs a network namespace")
    if problem:
        pytest.skip(problem)
    with _uncaptured(request):
        programs = find_programs()
    with RealNode(controlplane, programs, tmp_path_factory.mktemp("node")) as made:
        yield made


@pytest.fixture
def node(request: pytest.FixtureRequest, container_runtime: RealNode) -> Iterator[RealNode]:
    """Run a real kubelet, whose node is there for this test alone; its containers end with it."""
    made = container_runtime
    request.node.stash[_NODE_LOGS] = lambda: [
        (f"end of {name}'s log", made.log_tail(name)) for name in ("kubelet", "containerd")
    ]
    made.start_kubelet()
    yield made
    try:
        made.stop_kubelet()
    except BaseException:
        made.restart()
        raise


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the image of the release once for all tests of a worker."""
    return build_image(tmp_path_factory.mktemp("release"))


@pytest.fixture
def helm(request: pytest.FixtureRequest, controlplane: ControlPlane) -> Callable[..., str]:
    """``helm("template", "charts/koordinator")`` as the admin; raises if it fails."""
    _build(request, "helm")
    return controlplane.helm


def _build(request: pytest.FixtureRequest, program: str) -> None:
    with _uncaptured(request):
        binaries.find(program)


def _uncaptured(request: pytest.FixtureRequest) -> AbstractContextManager[None]:
    """Report that the build takes minutes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    uncaptured: AbstractContextManager[None] = capture.global_and_fixture_disabled()
    return uncaptured


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the control plane logged meanwhile."""
    report = yield
    for key in (_LOGS, _NODE_LOGS):
        if report.failed and key in item.stash:
            report.sections.extend(item.stash[key]())
    return report
