"""Claims of devices are decided as the stock kube-scheduler does, all gates of devices on.

Both see the same objects of one API server; pods stay where the original puts them.
"""

import os
import sys
from collections.abc import Iterator

import pytest
from tests.e2e.claims import release_claims
from tests.e2e.conftest import running_controlplane
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.stock.device_arena import DeviceArena
from tests.e2e.stock.device_worlds import GATES, make_device_world
from tests.e2e.stock.test_same_as_stock import STOCK, configuration

FIRST = int(os.environ.get("KOORDINATOR_STOCK_FIRST", "0"))
WORLDS = int(os.environ.get("KOORDINATOR_STOCK_WORLDS", "16"))  # a minute
_ON = f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}"


pytestmark = pytest.mark.skipif(
    kubernetes_minor() < 35,
    reason="counters of the worlds are in slices of their own, as Kubernetes 1.35 requires it",
)


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane whose API server keeps the fields of all gates."""
    with running_controlplane(request, tmp_path_factory.mktemp("devices"), [_ON]) as running:
        yield running


@pytest.fixture
def arena(controlplane: ControlPlane, namespace: str) -> Iterator[DeviceArena]:
    """Run the stock scheduler."""
    controlplane.start_scheduler(configuration(STOCK), flags=[_ON])
    yield DeviceArena(controlplane, namespace, STOCK)
    release_claims(controlplane.api)


def test_claims_are_decided_as_kube_scheduler_does(arena: DeviceArena) -> None:
    """Node (any of the best ones), devices with all that is written of them, or the refusal."""
    decisions, different = 0, []
    for seed in range(FIRST, FIRST + WORLDS):
        world = make_device_world(seed)
        arena.build(world)
        for pod in world.pods:
            decisions += 1
            difference = arena.compare(pod)
            if difference:
                different.append(f"world {seed} {pod['metadata']['name']}: {difference}")
    sys.stderr.write(f"{decisions - len(different)} of {decisions} decisions are the same\n")
    assert decisions >= 2 * WORLDS
    assert not different, "\n".join(different)
