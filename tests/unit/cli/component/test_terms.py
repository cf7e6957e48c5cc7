"""A process that loses its lease keeps nothing of the lost term: no mirror, no connection."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest
from tests.unit.cluster.kubernetes.scripted_server import ScriptedServer, reply, write_kubeconfig

from koordinator.api.kubescheduler import LeaderElectionConfiguration
from koordinator.cli.component.flags import ConnectionFlags, ProcessFlags
from koordinator.cli.component.process import ComponentProcess
from koordinator.cli.descheduler import process as descheduler_process
from koordinator.cli.descheduler.flags import DeschedulerFlags
from koordinator.cli.scheduler import process as scheduler_process
from koordinator.cli.scheduler.flags import SchedulerFlags, SchedulerServingFlags
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.watch import View
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import (
    DeschedulerConfiguration,
    DeschedulerLeaderElection,
    DeschedulerProfile,
)
from koordinator.process.termination import StopEvent
from koordinator.scheduler.loop import Scheduler
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.policies import shipped_configuration

TERMS = 3
NO_ELECTION = LeaderElectionConfiguration(leader_elect=False)
#: What refers to the whole cluster.
LARGE = (ClusterState, Descheduler, KubernetesCluster, Scheduler, View)


class LosingElection:
    """An election that this process wins at once, and loses after each turn with a full mirror."""

    lateness_s = None

    def __init__(self, parts: ComponentProcess, is_synced: Callable[[], bool]) -> None:
        self._parts, self._is_synced = parts, is_synced
        self.lost = 0

    @property
    def is_lost(self) -> bool:
        return self._is_synced()

    def rejoin_if_lost(self) -> None:
        self.lost += 1
        if self.lost == TERMS:
            self._parts.stopping.set()

    def may_act(self) -> bool:
        return True

    def wait_until_leading(self, _: float) -> bool:
        return True

    def checks(self) -> list[Any]:
        return []

    def start(self) -> None: ...

    def leave(self) -> None: ...


def living() -> Counter[str]:
    """Return how many objects there are of the large ones."""
    gc.collect()
    return Counter(
        type(each).__name__ for each in gc.get_objects() if issubclass(type(each), LARGE)
    )


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def parts(server: ScriptedServer, tmp_path: Path) -> Iterator[ComponentProcess]:
    """Return the parts of a process whose cluster has no objects."""
    server.on("GET /version", reply({"gitVersion": "v1.37.2"}))
    kubeconfig = str(write_kubeconfig(tmp_path / "kubeconfig", server.url))
    with ExitStack() as cleanup:
        yield ComponentProcess(
            "test",
            "koord_test",
            process=ProcessFlags(),
            connection=ConnectionFlags(kubeconfig=kubeconfig),
            stopping=StopEvent(),
            cleanup=cleanup,
        )
    gc.unfreeze()


def scheduler_of(parts: ComponentProcess) -> Any:
    """Return the process of a scheduler with Koordinator's plugins, which serves no pages."""
    flags = SchedulerFlags(serving=SchedulerServingFlags(secure_port=0), audit=True)
    return scheduler_process._Process(
        replace(shipped_configuration(), leader_election=NO_ELECTION), flags, parts
    )


def descheduler_of(parts: ComponentProcess) -> Any:
    """Return the process of a descheduler that proves its moves."""
    configuration = DeschedulerConfiguration(
        leader_election=DeschedulerLeaderElection(leader_elect=False),
        prove_moves=True,
        profiles=(DeschedulerProfile(),),
    )
    return descheduler_process._Process(configuration, DeschedulerFlags(), parts)


@pytest.mark.parametrize("process_of", [scheduler_of, descheduler_of])
def test_nothing_of_a_lost_term_is_kept(
    parts: ComponentProcess,
    process_of: Callable[[ComponentProcess], Any],
) -> None:
    """At the start of the next term no collector or page refers to the old cluster."""
    process, before, kept = process_of(parts), living(), list[Counter[str]]()
    process._serve = lambda: None
    process._election = LosingElection(parts, lambda: not process._not_synced())
    begin = process._begin_term

    def begin_term(connections: ExitStack) -> Any:
        kept.append(living() - before)
        return begin(connections)

    process._begin_term = begin_term
    process.run()

    assert kept == [Counter()] * TERMS
    shown = generate_latest(parts.registry).decode().splitlines()
    assert [name for name, times in Counter(shown).items() if times > 1] == []
