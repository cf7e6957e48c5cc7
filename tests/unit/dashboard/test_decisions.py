"""What was decided, as the dashboard tells it: which entries, to whom, and from where."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.dashboard.dashboards import crowded, manifests, served
from tests.worlds import START_S, node, pod
from typer.testing import CliRunner

from koordinator.cli.decision_archives import FileArchive, ServerArchive
from koordinator.cli.main import app
from koordinator.dashboard.access import EVERYTHING, ViewScope
from koordinator.dashboard.decisions import DecisionQuestion, decisions
from koordinator.dashboard.redaction import PrivateNames, Redactor
from koordinator.domain.audit import AuditedPod, AuditEntry, AuditOutcome, ScoredNode
from koordinator.domain.audit.entry import to_lines
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.features.audit.pages import audit_services
from koordinator.simulator.embedded import STOCK, Embedded

BLUE = ViewScope(frozenset({"blue"}), sees_nodes=False)


def bound(at_s: float, *pods: str, on: str = "n1", **given: Any) -> AuditEntry:
    together = tuple(AuditedPod(name, on, 1) for name in pods)
    return AuditEntry(at_s=at_s, outcome=AuditOutcome.BOUND, pods=together, **given)


def refused(at_s: float, name: str, reason: str, **given: Any) -> AuditEntry:
    tried = (AuditedPod(name, "", 1),)
    outcome = AuditOutcome.UNSCHEDULABLE
    return AuditEntry(at_s=at_s, outcome=outcome, pods=tried, reason=reason, **given)


TRAIL = [
    bound(1.0, "red/first", "blue/second", best=(ScoredNode("n1", 90, {"Fit": 90}),)),
    refused(
        2.0, "blue/job-0", "Insufficient cpu, red/first holds it", job="blue/job", plugin="Fit"
    ),
    AuditEntry(at_s=3.0, outcome=AuditOutcome.NODE_CLOSED, node="n1", reason="deleted"),
    AuditEntry(
        at_s=4.0,
        outcome=AuditOutcome.EVICTED,
        pods=(AuditedPod("blue/second"),),
        by="red/urgent",
        reason="preempted",
    ),
    AuditEntry(at_s=5.0, outcome=AuditOutcome.PLUGIN_TIMES, turn_pods=3, spent_us={"Filter/F": 9}),
]


def told(scope: ViewScope = EVERYTHING, asked: Mapping[str, str] | None = None) -> dict[str, Any]:
    names = PrivateNames({"red": frozenset({"red"})}, frozenset(), frozenset({"n1"}))
    question = DecisionQuestion.of(asked or {})
    return decisions(TRAIL, question, Redactor(scope, names), "somebody")


def test_the_newest_decision_comes_first() -> None:
    """What plugins took is no decision, but counts in the summary."""
    found = told()

    assert [one["atS"] for one in found["entries"]] == [4.0, 3.0, 2.0, 1.0]
    assert found["count"] == 4
    assert found["summary"]["slowest"][0]["plugin"] == "F"
    assert found["summary"]["rejected"][0]["job"] == "blue/job"


@pytest.mark.parametrize(
    ("asked", "times"),
    [
        ({"pod": "blue/second"}, [4.0, 1.0]),
        ({"text": "N1"}, [3.0, 1.0]),
        ({"text": "blue/job"}, [2.0]),
        ({"text": "urgent"}, [4.0]),
        ({"outcome": "unschedulable"}, [2.0]),
        ({"since": "2.5"}, [4.0, 3.0]),
        ({"pod": "blue/second", "outcome": "bound"}, [1.0]),
        ({"pod": "blue/*"}, []),
    ],
)
def test_every_restriction_holds(asked: dict[str, str], times: list[float]) -> None:
    assert [one["atS"] for one in told(asked=asked)["entries"]] == times


@pytest.mark.parametrize("asked", [{"outcome": "nonsense"}, {"since": "yesterday"}])
def test_what_can_not_be_meant_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(InputError, match="accepted is"):
        DecisionQuestion.of(asked)


def test_a_tenant_is_told_of_its_own_pods_only() -> None:
    """Neither names nor nodes of others, nor the scores of a pod that it may not see."""
    found = told(BLUE)

    text = msgspec.json.encode(found).decode()
    assert "red" not in text.replace("preempted", "").replace("rejected", "")
    assert "n1" not in text
    assert [one["atS"] for one in found["entries"]] == [4.0, 2.0, 1.0]
    assert found["entries"][-1]["pods"] == [["blue/second", "", 1]]
    assert "best" not in found["entries"][-1]


@pytest.mark.parametrize(
    "asked", [{"pod": "red/first"}, {"text": "red"}, {"text": "n1"}, {"text": "urgent"}]
)
def test_no_question_finds_what_may_not_be_seen(asked: dict[str, str]) -> None:
    """Otherwise whoever asks would learn that it is there."""
    assert told(BLUE, asked)["entries"] == []


def test_a_dashboard_tells_what_its_own_scheduler_decides() -> None:
    """Manifests are scheduled here: who got which node, what came next, and who got none."""
    objects = [node("a", cpu=8), node("b", cpu=4), pod("p", cpu=3), pod("large", cpu=99)]
    with served(manifests(objects)) as found:
        answer = found.get("/api/decisions").json
        one = found.get("/api/decisions?pod=default/p").json
        wrong = found.get("/api/decisions?since=x")

    assert answer["isKept"]
    assert answer["summary"]["pods"] == {"bound": 1, "unschedulable": 1}
    (entry,) = one["entries"]
    assert {each["node"] for each in entry["best"]} == {"a", "b"}
    assert entry["pods"][0][1] == entry["best"][0]["node"]
    assert wrong.status == 400


def test_pods_are_found_by_a_part_of_their_names() -> None:
    """Those with a node, too, with that node."""
    with served(manifests(crowded())) as found:
        answer = found.get("/api/find?text=UNS-").json
        assert answer["pods"] == [
            {"pod": "blue/runs-a", "node": "a"},
            {"pod": "blue/runs-b", "node": "b"},
        ]
        assert found.get("/api/find?text=nobody").json == {"pods": [], "count": 0}
        assert found.get("/api/find").status == 400


# -- archives --------------------------------------------------------------------------------


def test_of_rotated_files_no_more_are_read_than_needed(tmp_path: Path) -> None:
    """The oldest one is not even looked at."""
    (tmp_path / "audit.jsonl.2").write_bytes(b"nonsense\n")
    (tmp_path / "audit.jsonl.1").write_bytes(to_lines([bound(1.0, "a/x"), bound(2.0, "a/y")]))
    (tmp_path / "audit.jsonl").write_bytes(to_lines([bound(3.0, "a/z")]))

    assert [one.at_s for one in FileArchive([tmp_path]).newest(2)] == [2.0, 3.0]


def test_folders_of_several_replicas_are_put_together(tmp_path: Path) -> None:
    """In the order of time, whoever led."""
    for name, times in (("one", (1.0, 4.0)), ("two", (2.0, 3.0))):
        (tmp_path / name).mkdir()
        lines = to_lines([bound(at, "a/x") for at in times])
        (tmp_path / name / "audit.jsonl").write_bytes(lines)

    found = FileArchive([tmp_path / "one", tmp_path / "two"]).newest(9)
    assert [one.at_s for one in found] == [1.0, 2.0, 3.0, 4.0]


def test_a_running_scheduler_is_asked_for_what_is_new_only() -> None:
    """What it has forgotten meanwhile, as after a restart, is still known."""
    trail = [bound(1.0, "a/x"), bound(100.0, "a/y")]
    asked: list[dict[str, str]] = []

    def ask(path: str, parameters: dict[str, str]) -> bytes:
        assert path == "/apis/v1/audit"
        asked.append(parameters)
        since = float(parameters["since"])
        found = [entry for entry in trail if entry.at_s >= since]
        return msgspec.json.encode({"entries": found[-int(parameters["limit"]) :]})

    archive = ServerArchive("https://there", ask)
    assert [one.at_s for one in archive.newest(10)] == [1.0, 100.0]
    trail[:] = [bound(99.5, "a/late"), bound(101.0, "b/z")]
    assert [one.at_s for one in archive.newest(10)] == [1.0, 99.5, 101.0]
    assert [float(one["since"]) for one in asked] == [0.0, 90.0]
    assert [one.at_s for one in archive.newest(2)] == [99.5, 101.0]


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["-w", "demo", "--audit", "there"], "--audit: accepted with a cluster or manifests only"),
        (["-f", "there", "--audit-token", "t"], "accepted together with --audit-server only"),
        (["-f", "a", "--audit", "b", "--audit-server", "http://c"], "accepted is one of both"),
        (["-f", "examples/move.yaml", "--audit", "nowhere"], "nowhere: can't be read"),
    ],
)
def test_what_can_not_be_told_is_refused(flags: list[str], found: str) -> None:
    """Before anything is served."""
    done = CliRunner().invoke(app, ["dashboard", *flags, "--no-browser", "--listen", "127.0.0.1:0"])
    assert done.exit_code != 0
    assert found in f"{done.exception}"


def test_a_scheduler_that_runs_answers_what_it_is_asked() -> None:
    """The archive's parameters are those of its page, and its entries those that it decided."""
    audit = Audit()
    world = Embedded(STOCK, now_s=START_S, audit=audit)
    world.load([node("a", cpu=8), pod("p", cpu=3), pod("large", cpu=99)])
    world.run_to_fixed_point()
    pages = audit_services(audit, lambda question: question())

    def ask(path: str, parameters: dict[str, str]) -> bytes:
        return msgspec.json.encode(pages[path.removeprefix("/apis/v1")](parameters))

    archive = ServerArchive("https://there", ask)
    first = archive.newest(100)
    assert {pod.pod for entry in first for pod in entry.pods} == {"default/p", "default/large"}
    assert archive.newest(100) == first
