"""One control plane, one scheduler and one manager for all scenarios of the originals' own suites.

The API server has the alpha APIs of Workloads and of rules that taint devices.  The scheduler has
two profiles: kube-scheduler's own and the one that the chart installs.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import running_controlplane
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.leftovers import Leftovers
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.suites.cluster import SuiteCluster

_MINOR = kubernetes_minor()
#: Gates by the first release that the suites use them in.
_SINCE = {
    "DRADeviceTaints": 33,
    "DRADeviceTaintRules": 35,
    "GenericWorkload": 35,
    "TopologyAwareWorkloadScheduling": 37,
    "CompositePodGroup": 37,
    "DRANodeAllocatableResources": 37,
    "InPlacePodVerticalScalingSchedulerPreemption": 37,
}
#: Of the API server; the scheduler of 1.35 and 1.36 has one more.
SERVER_GATES = ",".join(f"{gate}=true" for gate, since in _SINCE.items() if since <= _MINOR)
GATES = SERVER_GATES + (",GangScheduling=true" if _MINOR in (35, 36) else "")
#: Where each release has the Workloads or PodGroups of pods, and DeviceTaintRules.
APIS = {
    33: "resource.k8s.io/v1alpha3=true",
    34: "resource.k8s.io/v1alpha3=true",
    35: "scheduling.k8s.io/v1alpha1=true,resource.k8s.io/v1alpha3=true",
    36: "scheduling.k8s.io/v1alpha2=true,resource.k8s.io/v1beta2=true",
}
APIS_SINCE_37 = "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
CHART = Path(__file__).parents[3] / "charts/koordinator"


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane with alpha APIs."""
    apis = APIS.get(_MINOR, APIS_SINCE_37)
    flags = (f"--feature-gates={SERVER_GATES}", f"--runtime-config={apis}")
    with running_controlplane(request, tmp_path_factory.mktemp("suites"), flags) as running:
        yield running


@pytest.fixture(scope="session")
def leftovers(controlplane: ControlPlane) -> Leftovers:
    """Find what tests leave; this one knows the cluster of these suites."""
    return Leftovers(controlplane.api)


@pytest.fixture(scope="session")
def scheduler(controlplane: ControlPlane, leftovers: Leftovers) -> Iterator[SchedulerProcess]:
    """Run one scheduler while all scenarios come and go."""
    del leftovers  # what the scheduler makes goes with every test
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    profiles = [{"schedulerName": "default-scheduler"}, *values["scheduler"]["config"]["profiles"]]
    configuration = {"leaderElection": {"leaderElect": False}, "profiles": profiles}
    flags = [f"--feature-gates={GATES},MultiQuotaTree=true,ElasticQuotaGuaranteeUsage=true"]
    with SchedulerProcess(controlplane, configuration, flags=flags) as running:
        yield running


@pytest.fixture
def cluster(
    controlplane: ControlPlane,
    scheduler: SchedulerProcess,
    kubelet: FakeKubelet,
    namespace: str,
) -> SuiteCluster:
    """Work in a namespace of one's own, in a cluster that has no nodes yet."""
    assert scheduler.is_running, scheduler.last_words()
    del kubelet
    return SuiteCluster(controlplane.api, namespace)


@pytest.fixture
def koord(cluster: SuiteCluster) -> SuiteCluster:
    """Return a workspace for pods of koord-scheduler."""
    cluster.scheduler_name = "koord-scheduler"
    return cluster
