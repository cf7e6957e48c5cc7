"""The audit trail: entries and their summary."""

from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.unit.scheduler.test_gangs import config, group, members
from tests.worlds import START_S, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import OwnerReference
from koordinator.api.node import Node
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.audit import AuditChoice, AuditEntry, AuditOutcome, from_lines
from koordinator.foundation.errors import InputError
from koordinator.process import logs
from koordinator.process.logs import RotatedFile
from koordinator.scheduler.features.audit import Audit, audit_services
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

EVERYTHING = AuditChoice()


class Audited:
    """Small world with an audited scheduler; ``lines`` are the written ones."""

    def __init__(self, capacity: int = 1000, config: KubeSchedulerConfiguration = STOCK) -> None:
        self.lines: list[bytes] = []
        self.audit = Audit(self.lines.append, capacity=capacity)
        metrics = SchedulerMetrics(CollectorRegistry())
        self.world = Embedded(config, now_s=START_S, metrics=metrics, audit=self.audit)
        self.world.load([node("a", cpu=4), node("b", cpu=8)])

    @property
    def cluster(self) -> MemoryCluster:
        return self.world.cluster

    def entries(self, *outcomes: AuditOutcome) -> list[AuditEntry]:
        return self.audit.entries(AuditChoice(outcomes=frozenset(outcomes)), 1000)

    def cordon(self, name: str, *, on: bool) -> None:
        stored = self.cluster.get(Node, name)
        self.cluster.update(replace(stored, spec=replace(stored.spec, unschedulable=on)))
        self.world.scheduler.step()


def test_entry_of_a_bound_pod_has_scores_and_the_decisive_plugin() -> None:
    """The best node is first; the plugin is the one that separates the best nodes most."""
    one = Audited()
    one.cluster.load([pod("p", cpu=2)])
    one.world.scheduler.step()

    (entry,) = one.entries(AuditOutcome.BOUND)
    assert [(it.pod, it.node, it.attempt) for it in entry.pods] == [("default/p", "b", 1)]
    assert [it.node for it in entry.best] == ["b", "a"]
    assert all(sum(it.scores.values()) == it.total for it in entry.best)
    assert entry.plugin == "NodeResourcesFit"
    assert entry.turn_pods == 1
    assert entry.took_s > 0
    assert "Filter" in entry.spent_us


def test_placed_pods_keep_their_scores_beside_a_rejected_pod() -> None:
    """Pods of several classes are decided in one attempt; the scores belong to the first."""
    one = Audited()
    one.cluster.load([pod("big", cpu=20), pod("p", cpu=2), pod("q", cpu=1)])
    one.world.scheduler.step()

    (entry,) = [it for it in one.entries(AuditOutcome.BOUND) if it.best]
    assert entry.pods[0].node == entry.best[0].node == "b"
    assert len(one.entries(AuditOutcome.UNSCHEDULABLE)) == 1


def test_a_rejected_pod_has_the_plugin_and_the_reason() -> None:
    """The figures are present although the attempt had not ended at the rejection."""
    one = Audited()
    one.cluster.load([pod("p", cpu=20)])
    one.world.scheduler.step()

    (entry,) = one.entries(AuditOutcome.UNSCHEDULABLE)
    assert entry.plugin == "NodeResourcesFit"
    assert entry.reason.startswith("Insufficient cpu")
    assert entry.turn_pods == 1


def test_pods_decided_together_are_one_entry() -> None:
    """A run of identical pods costs one entry, not one per pod."""
    one = Audited()
    one.cluster.load([pod(f"p{i}", cpu="100m") for i in range(20)])
    one.world.scheduler.step()

    (entry,) = one.entries(AuditOutcome.BOUND)
    assert len(entry.pods) == entry.turn_pods == 20


def test_entry_of_a_victim_names_the_preemptor() -> None:
    """Preemption is a decision, too."""
    one = Audited()
    one.cluster.load([pod("low", cpu=8, on="b", priority=0), pod("high", cpu=6, priority=10)])
    one.world.run_to_fixed_point()

    (entry,) = one.entries(AuditOutcome.EVICTED)
    assert (entry.pods[0].pod, entry.by) == ("default/low", "default/high")


def test_ring_drops_the_oldest_entries() -> None:
    """The capacity is a number of pods."""
    one = Audited(capacity=5)
    for number in range(12):
        one.cluster.load([pod(f"p{number}", cpu="100m")])
        one.world.scheduler.step()

    kept = [it.pods[0].pod for it in one.entries(AuditOutcome.BOUND)]
    assert kept == [f"default/p{number}" for number in range(7, 12)]


def test_written_entries_equal_those_in_memory(tmp_path: Path) -> None:
    """Lines are read back as the same entries, also from several files."""
    one = Audited()
    kept = RotatedFile(tmp_path / "trail", "audit.jsonl", largest_bytes=600, kept=50)
    for number in range(12):
        one.cluster.load([pod(f"p{number}", cpu=1)])
        one.world.scheduler.step()
    for lines in one.lines:
        kept.write(lines)
    kept.close()

    files = list((tmp_path / "trail").iterdir())
    assert len(files) > 1
    names = ["audit.jsonl", *(f"audit.jsonl.{number}" for number in range(1, len(files)))]
    read = [
        entry
        for name in reversed(names)
        for entry in from_lines((tmp_path / "trail" / name).read_bytes().splitlines(), name)
    ]
    assert read == one.entries()


def test_number_of_files_is_limited(tmp_path: Path) -> None:
    """The oldest file is deleted when a new one begins."""
    kept = RotatedFile(tmp_path, "audit.jsonl", largest_bytes=10, kept=2)
    for number in range(6):
        kept.write(b"12345 %d\n" % number)
    kept.close()

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "audit.jsonl": "12345 5\n",
        "audit.jsonl.1": "12345 4\n",
        "audit.jsonl.2": "12345 3\n",
    }


def test_malformed_line_is_reported() -> None:
    """The error has file and line number."""
    with pytest.raises(InputError, match="trail:2"):
        list(from_lines([b"", b"{}"], "trail"))


def test_node_that_closes_repeatedly_is_flapping() -> None:
    """Closing once is maintenance; a node that was never open does not count."""
    one = Audited()
    one.cordon("a", on=True)
    for _ in range(3):
        one.cordon("b", on=True)
        one.cordon("b", on=False)

    assert [(it.node, it.closed) for it in one.audit.summary(EVERYTHING).flapping] == [("b", 3)]


def test_the_summary_names_jobs_and_plugins() -> None:
    """A job is the gang or the owner of its pods."""
    one = Audited()
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="u", controller=True)
    for name in ("x", "y"):
        one_pod = pod(name, cpu=20)
        meta = replace(one_pod.metadata, owner_references=(owner,))
        one.cluster.load([replace(one_pod, metadata=meta)])
    one.cluster.load([pod("fits", cpu=1)])
    one.world.scheduler.step()
    one.world.scheduler.finish()

    summary = one.audit.summary(EVERYTHING)
    (job,) = summary.rejected
    assert (job.job, job.rejections, job.pods) == ("default/j", 2, 2)
    assert summary.pods == {"unschedulable": 2, "bound": 1}
    assert summary.decisive == {"NodeResourcesFit": 2}
    assert {it.point for it in summary.slowest} >= {"Filter", "Score"}
    assert sum(it.share for it in summary.slowest) <= 1 + 1e-9


def test_every_member_of_a_gang_is_recorded() -> None:
    """The failed member and the waiting ones have records; placed members are one attempt."""
    one = Audited(config=config())
    one.cluster.load([group("g", 3), *members("g", 3, cpu=5)])
    one.world.scheduler.step()
    refused = one.entries(AuditOutcome.UNSCHEDULABLE)

    assert {it.pods[0].pod for it in refused} == {f"default/g-{i}" for i in range(3)}
    assert {it.job for it in refused} == {"default/g"}
    assert sum(it.took_s > 0 for it in refused) == 1
    one.cluster.load([node("c", cpu=12)])
    one.world.run_to_fixed_point()
    bound = one.entries(AuditOutcome.BOUND)
    assert sum(len(it.pods) for it in bound) == 3
    assert sum(it.took_s > 0 for it in bound) == 1
    assert list(from_lines(b"".join(one.lines).splitlines(), "")) == one.entries()


def test_page_accepts_filters() -> None:
    """A name with a wildcard, an outcome and a limit are accepted; errors list accepted values."""
    one = Audited()
    one.cluster.load([pod("p1", cpu=1), pod("p2", cpu=20), pod("q1", cpu=1)])
    one.world.scheduler.step()
    pages = audit_services(one.audit, lambda question: question())

    response = pages["/audit"]({"pod": "default/p*", "outcome": "unschedulable,failed"})
    assert isinstance(response, dict)
    assert [it["pods"][0][0] for it in response["entries"]] == ["default/p2"]
    assert pages["/audit/summary"]({"limit": "1"})
    with pytest.raises(InputError, match=r"outcome: must be one of bound"):
        pages["/audit"]({"outcome": "lost"})
    with pytest.raises(InputError, match="limit"):
        pages["/audit"]({"limit": "0"})


def test_torn_line_does_not_damage_others(tmp_path: Path) -> None:
    """The process ended, or the disk was full for a while."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"atS":1')
    kept = RotatedFile(tmp_path, "audit.jsonl")
    kept.write(b"whole\n")
    kept.write(b"next\n")
    kept.close()

    assert path.read_bytes() == b'{"atS":1\nwhole\nnext\n'


def test_a_disk_that_is_full_tears_one_line_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines written after space is available again are readable."""
    headroom = iter([3, 100])

    class Full(FileIO):
        def write(self, lines: Any) -> int:
            return super().write(lines[: next(headroom)])

    monkeypatch.setattr(logs, "FileIO", Full)
    kept = logs.RotatedFile(tmp_path, "audit.jsonl")
    kept.write(b"first\n")
    kept.write(b"second\n")
    kept.close()

    assert (tmp_path / "audit.jsonl").read_bytes() == b"fir\nsecond\n"
