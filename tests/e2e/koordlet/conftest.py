"""``koord koordlet`` as a process, with the rights it is installed with, on a machine of files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koordlet.agent_process import AgentProcess, MachineOfFiles, install_rights


@pytest.fixture
def rights(controlplane: ControlPlane, helm: Callable[..., str]) -> Path:
    """Install what the chart gives the agent; return a kubeconfig of it."""
    return install_rights(controlplane, helm)


@pytest.fixture
def machine(tmp_path: Path) -> MachineOfFiles:
    """Make a machine of eight CPUs that does nothing."""
    return MachineOfFiles(tmp_path)


@pytest.fixture
def agent(
    controlplane: ControlPlane, rights: Path, machine: MachineOfFiles
) -> Iterator[AgentProcess]:
    """Make an agent that is not started yet."""
    made = AgentProcess(controlplane, rights, machine)
    yield made
    made.kill()
