"""Scheduling decisions on the dashboard: filters, redaction and archives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.dashboard.dashboards import crowded, manifests, served
from tests.worlds import START_S, node, pod
from typer.testing import CliRunner

from koordinator.cli.dashboard.flags import FileArchive, ServerArchive
from koordinator.cli.main import app
from koordinator.dashboard.access import EVERYTHING, PrivateNames, Redactor, ViewScope
from koordinator.dashboard.decisions import DecisionQuery, decisions
from koordinator.domain.audit import AuditedPod, AuditEntry, AuditOutcome, ScoredNode, to_lines
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.audit import Audit, audit_services
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


def answered(
    scope: ViewScope = EVERYTHING, parameters: Mapping[str, str] | None = None
) -> dict[str, Any]:
    names = PrivateNames({"red": frozenset({"red"})}, frozenset(), frozenset({"n1"}))
    query = DecisionQuery.of(parameters or {})
    return decisions(TRAIL, query, Redactor(scope, names), "a test")


def test_newest_decision_comes_first() -> None:
    """Plugin times are no decision and count in the summary only."""
    result = answered()

    assert [one["atS"] for one in result["entries"]] == [4.0, 3.0, 2.0, 1.0]
    assert result["count"] == 4
    assert result["summary"]["slowest"][0]["plugin"] == "F"
    assert result["summary"]["rejected"][0]["job"] == "blue/job"


@pytest.mark.parametrize(
    ("parameters", "times"),
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
def test_entries_match_every_parameter(parameters: dict[str, str], times: list[float]) -> None:
    assert [one["atS"] for one in answered(parameters=parameters)["entries"]] == times


@pytest.mark.parametrize("parameters", [{"outcome": "nonsense"}, {"since": "yesterday"}])
def test_invalid_parameter_is_rejected(parameters: dict[str, str]) -> None:
    with pytest.raises(InputError, match="must be"):
        DecisionQuery.of(parameters)


def test_decisions_of_other_tenants_are_redacted() -> None:
    """Names and nodes of others are hidden, and so are scores of a pod outside the scope."""
    result = answered(BLUE)

    text = msgspec.json.encode(result).decode()
    assert "red" not in text.replace("preempted", "").replace("rejected", "")
    assert "n1" not in text
    assert [one["atS"] for one in result["entries"]] == [4.0, 2.0, 1.0]
    assert result["entries"][-1]["pods"] == [["blue/second", "", 1]]
    assert "best" not in result["entries"][-1]


@pytest.mark.parametrize(
    "parameters", [{"pod": "red/first"}, {"text": "red"}, {"text": "n1"}, {"text": "urgent"}]
)
def test_query_cannot_detect_redacted_content(parameters: dict[str, str]) -> None:
    assert answered(BLUE, parameters)["entries"] == []


def test_dashboard_shows_decisions_of_its_own_scheduler() -> None:
    """Manifests are scheduled here: the answer has nodes, runners-up and pods without a node."""
    objects = [node("a", cpu=8), node("b", cpu=4), pod("p", cpu=3), pod("large", cpu=99)]
    with served(manifests(objects)) as server:
        reply = server.get("/api/decisions").json
        one = server.get("/api/decisions?pod=default/p").json
        wrong = server.get("/api/decisions?since=x")

    assert reply["isKept"]
    assert reply["summary"]["pods"] == {"bound": 1, "unschedulable": 1}
    (entry,) = one["entries"]
    assert {each["node"] for each in entry["best"]} == {"a", "b"}
    assert entry["pods"][0][1] == entry["best"][0]["node"]
    assert wrong.status == 400


def test_find_returns_placed_pods_by_part_of_their_name() -> None:
    with served(manifests(crowded())) as server:
        reply = server.get("/api/find?text=UNS-").json
        assert reply["pods"] == [
            {"pod": "blue/runs-a", "node": "a"},
            {"pod": "blue/runs-b", "node": "b"},
        ]
        assert server.get("/api/find?text=missing").json == {"pods": [], "count": 0}
        assert server.get("/api/find").status == 400


# -- archives --------------------------------------------------------------------------------


def test_only_needed_rotated_files_are_read(tmp_path: Path) -> None:
    """The oldest file is not opened."""
    (tmp_path / "audit.jsonl.2").write_bytes(b"nonsense\n")
    (tmp_path / "audit.jsonl.1").write_bytes(to_lines([bound(1.0, "a/x"), bound(2.0, "a/y")]))
    (tmp_path / "audit.jsonl").write_bytes(to_lines([bound(3.0, "a/z")]))

    assert [one.at_s for one in FileArchive([tmp_path]).newest(2)] == [2.0, 3.0]


def test_folders_of_several_replicas_are_merged_by_time(tmp_path: Path) -> None:
    for name, times in (("one", (1.0, 4.0)), ("two", (2.0, 3.0))):
        (tmp_path / name).mkdir()
        lines = to_lines([bound(at, "a/x") for at in times])
        (tmp_path / name / "audit.jsonl").write_bytes(lines)

    result = FileArchive([tmp_path / "one", tmp_path / "two"]).newest(9)
    assert [one.at_s for one in result] == [1.0, 2.0, 3.0, 4.0]


def test_server_archive_requests_new_entries_only() -> None:
    """Entries that the scheduler has dropped, as after a restart, stay in the archive."""
    trail = [bound(1.0, "a/x"), bound(100.0, "a/y")]
    requests: list[dict[str, str]] = []

    def ask(path: str, parameters: dict[str, str]) -> bytes:
        assert path == "/apis/v1/audit"
        requests.append(parameters)
        since = float(parameters["since"])
        result = [entry for entry in trail if entry.at_s >= since]
        return msgspec.json.encode({"entries": result[-int(parameters["limit"]) :]})

    archive = ServerArchive("https://there", ask)
    assert [one.at_s for one in archive.newest(10)] == [1.0, 100.0]
    trail[:] = [bound(99.5, "a/late"), bound(101.0, "b/z")]
    assert [one.at_s for one in archive.newest(10)] == [1.0, 99.5, 101.0]
    assert [float(one["since"]) for one in requests] == [0.0, 90.0]
    assert [one.at_s for one in archive.newest(2)] == [99.5, 101.0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-w", "demo", "--audit", "there"], "--audit: requires a cluster or manifests"),
        (["-f", "there", "--audit-token", "t"], "requires --audit-server"),
        (["-f", "a", "--audit", "b", "--audit-server", "http://c"], "must set only one of the two"),
        (["-f", "examples/move.yaml", "--audit", "nowhere"], "nowhere: cannot be read"),
    ],
)
def test_invalid_audit_flags_are_rejected(flags: list[str], message: str) -> None:
    """The command fails before it serves anything."""
    done = CliRunner().invoke(app, ["dashboard", *flags, "--no-browser", "--listen", "127.0.0.1:0"])
    assert done.exit_code != 0
    assert message in f"{done.exception}"


def test_server_archive_reads_the_audit_page_of_a_scheduler() -> None:
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
