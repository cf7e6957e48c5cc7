"""One virtual machine, with a node of a real control plane in it, for all tests."""

from collections.abc import Iterator

import pytest
from tests.e2e import network
from tests.e2e.conftest import running_controlplane
from tests.e2e.controlplane import ControlPlane
from tests.e2e.real_node import find_programs, missing
from tests.vm.machine import VirtualMachine
from tests.vm.node import NodeInside
from tests.vm.packages import find_packages


@pytest.fixture(scope="session")
def machine() -> Iterator[VirtualMachine]:
    """Boot a virtual machine."""
    packages = find_packages()
    network.enter()  # the API server's
    with VirtualMachine(packages) as made:
        yield made


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane outside the virtual machine."""
    with running_controlplane(request, tmp_path_factory.mktemp("controlplane")) as running:
        yield running


@pytest.fixture(scope="session")
def node(controlplane: ControlPlane, machine: VirtualMachine) -> NodeInside:
    """Start containerd and kubelet in the virtual machine."""
    problem = missing()
    if problem:
        pytest.fail(problem)
    made = NodeInside(controlplane, machine, find_programs())
    made.start()
    return made


@pytest.fixture(scope="session")
def agent(node: NodeInside) -> NodeInside:
    """Start the node agent in the virtual machine."""
    node.start_agent()
    return node
