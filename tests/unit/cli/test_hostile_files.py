"""Hostile files: one error that names the file, never a traceback, no flood."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.simulator.recordings import Session, new_pod
from tests.worlds import node
from typer.testing import CliRunner, Result

from koordinator.cli.main import app
from koordinator.domain.audit import AuditedPod, AuditEntry, AuditOutcome, to_lines
from koordinator.foundation.errors import InputError
from koordinator.simulator.recording.batch import LONGEST_HEADER_BYTES

HEADER = b'{"format":"koordinator-recording/v1","startedS":0}\n'
NODES = b"sn,cpu_milli,memory_mib,gpu,model\nn0,16000,65536,2,T4\n"
PODS = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1000,1024,1,500,\nb,10,24,0,0,\n"
MANIFESTS = b"""apiVersion: v1
kind: Node
metadata: {name: n, labels: &l {a: b}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: 10}}
---
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"x": "1"}},
 "spec": {"priority": 7, "containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}}
"""
WORKLOAD = b"""title: small
horizon: 1h
nodePools: [{name: a, count: 2, cpu: 4, memory: 8Gi}]
podStreams:
- name: s
  arrival: {poisson: {perHour: 5}}
  duration: {constant: 10m}
  template: {cpu: 1, memory: 1Gi}
"""
CONFIG = b"""apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler, pluginConfig: [{name: NodeResourcesFit, args: {}}]}]
"""
FILES = {
    "manifest": "m.yaml",
    "json": "m.json",
    "config": "c.yaml",
    "workload": "w.yaml",
    "recording": "r.gz",
    "gzip": "r.gz",
    "audit": "audit.jsonl",
}
TOKENS = st.sampled_from(
    [
        *(b"[" * 300, b"{", b"}", b'"', b"9" * 5000, b"\0", b"\n", b"null", b"-1", b"1e999", b"*l"),
        *(b"\xff", b"\\ud800", b"&l ", b"- ", b": ", b",", b"'", b"\xef\xbb\xbf", b"NaN", b"0x_"),
        *(b"\x1b[2J", b"2", b"0"),
    ]
)


def koord(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(it) for it in arguments])


def refusal(done: Result, *named: object) -> str:
    """Return the error of a command that refused its input."""
    assert isinstance(done.exception, InputError), done.exception
    text = str(done.exception)
    for name in named:
        assert str(name) in text
    return text


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def commands(folder: Path, kind: str, content: bytes) -> list[str]:
    """Return the command that reads a file of that kind."""
    write(folder / "openb_node_list_gpu_node.csv", content if kind == "nodes" else NODES)
    write(folder / "openb_pod_list_default.csv", content if kind == "pods" else PODS)
    if kind in ("pods", "nodes"):
        return ["simulate", "--trace", "openb", "--data", str(folder), "--policy", "bestfit"]
    if kind == "recording":
        content = gzip.compress(content, 1)
    manifests = str(write(folder / "m.yaml", content if kind == "manifest" else MANIFESTS))
    file = str(write(folder / FILES[kind], content))
    return {
        "manifest": ["schedule", "-f", manifests],
        "json": ["schedule", "-f", file],
        "config": ["schedule", "-f", manifests, "--config", file],
        "workload": ["simulate", "-w", file, "--until", "1s"],
        "recording": ["replay", file],
        "gzip": ["replay", file],
        "audit": ["audit", file],
    }[kind]


def valid() -> dict[str, bytes]:
    one = Session(node("a", cpu=4), node("b", cpu=4))
    one.submit(new_pod("p", cpu=1))
    recording = b"".join(one.lines)
    entry = AuditEntry(
        at_s=2.0, outcome=AuditOutcome.BOUND, pods=(AuditedPod("a/x", "n", 2),), took_s=0.1
    )
    return {
        "manifest": MANIFESTS,
        "json": MANIFESTS.partition(b"---\n")[2],
        "config": CONFIG,
        "workload": WORKLOAD,
        "recording": recording,
        "gzip": gzip.compress(recording, mtime=0),
        "audit": to_lines([entry, entry]),
        "pods": PODS,
        "nodes": NODES,
    }


VALID = valid()


@pytest.mark.parametrize("kind", VALID)
def test_unspoilt_files_are_accepted(tmp_path: Path, kind: str) -> None:
    """The files that the other tests damage are valid."""
    done = koord(*commands(tmp_path, kind, VALID[kind]))

    assert (done.exit_code, done.exception) == (0, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALID)
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_spoilt_files_are_accepted_or_refused(
    tmp_path: Path, kind: str, data: st.DataObject
) -> None:
    """For any part that is cut out, inserted or doubled."""
    content = VALID[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = start + data.draw(st.integers(0, 12))
        middle = data.draw(TOKENS | st.binary(max_size=4) | st.just(content[start:end] * 2))
        content = content[:start] + middle + content[end:]
    done = koord(*commands(tmp_path, kind, content))

    if not isinstance(done.exception, SystemExit | None):
        refusal(done)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALID)
@settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path: Path, kind: str, content: bytes) -> None:
    """Random bytes are accepted only if they happen to be an empty file."""
    done = koord(*commands(tmp_path, kind, content))

    if not isinstance(done.exception, SystemExit | None):
        refusal(done, tmp_path)


@pytest.mark.parametrize("kind", ["manifest", "config", "workload"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: 1\nx: 1\n", "x: key must be given only once"),
        ("x: " + "[" * 20_000, "nested too deep"),
        ("x: " + "9" * 5000, "x: a number must have at most 400 characters, got 5,000 in line"),
    ],
)
def test_hostile_yaml_is_refused_by_every_reader(
    tmp_path: Path, kind: str, text: str, message: str
) -> None:
    """Manifests, workloads and configurations have a reader each."""
    before = VALID[kind] + (b"---\n" if kind == "manifest" else b"")

    refusal(koord(*commands(tmp_path, kind, before + text.encode())), message, tmp_path)


def test_hostile_json_is_refused(tmp_path: Path) -> None:
    """A file and a list in it."""
    deep = b'{"apiVersion":"v1","kind":"Pod","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    twice = b'{"apiVersion":"v1","kind":"Pod",\n"metadata":{"name":"p","name":"q"}}'

    refusal(koord("schedule", "-f", write(tmp_path / "d.json", deep)), "d.json", "nested too deep")
    output = refusal(koord("schedule", "-f", write(tmp_path / "t.json", twice)), "t.json")
    assert "metadata.name: key must be given only once, got it again in line 2" in output


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (lambda: b"0" * (LONGEST_HEADER_BYTES * 3), "r.gz:1: must not have lines longer than"),
        (lambda: HEADER + b"0" * 999 + b"\n", "r.gz:2: must be"),
        (lambda: HEADER + b'{"atS":' + b"[" * 99_999 + b"\n", "r.gz:2: must be"),
        (
            lambda: HEADER[:-2] + b',"x":' + b"[" * 99_999 + b"\n",
            "r.gz: must be a file that koord record wrote",
        ),
        (
            lambda: HEADER.replace(b":0", b":1e300"),
            "r.gz: startedS: must be a time, in seconds since the epoch, got 1e+300",
        ),
        (
            lambda: HEADER + b'{"atS":1e12,"events":[]}\n',
            "r.gz:2: atS: must be a time within a year",
        ),
        (
            lambda: HEADER[:-2] + b',"startedS":1}\n',
            "r.gz:1: startedS: key must be given only once",
        ),
    ],
)
def test_hostile_recording_is_refused_with_its_line(
    tmp_path: Path, lines: Callable[[], bytes], message: str
) -> None:
    """The line is reported; unpacked data has a bound."""
    refusal(koord(*commands(tmp_path, "recording", lines())), message)


def test_a_recording_of_thousands_of_empty_files_is_refused(tmp_path: Path) -> None:
    """Each file costs a copy of what follows."""
    content = gzip.compress(HEADER) + gzip.compress(b"") * 10_001

    refusal(koord(*commands(tmp_path, "gzip", content)), "r.gz", "at most 10,000 gzip members")


def test_hostile_line_of_an_audit_is_left_out(tmp_path: Path) -> None:
    """A deep line is one of those that are left out."""
    deep = b'{"atS":1,"x":' + b"[" * 99_999 + b"\n"
    done = koord(*commands(tmp_path, "audit", VALID["audit"] + deep + VALID["audit"]))

    assert done.exit_code == 0
    assert "1 lines are left out, the first:" in done.stderr
    refusal(koord(*commands(tmp_path, "audit", deep)), "audit.jsonl:1")


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        (PODS.replace(b"1000,1024", b"1e300,1024"), "line 2: cpu_milli: must be at most"),
        (PODS.replace(b"num_gpu", b"name"), "line 1: column 'name' must be given only once"),
        (PODS + b"x" * 200_000, "line 4: cannot be read: field larger than field limit"),
        (PODS + b'"' + b"x\n" * 200_000, "cannot be read: field larger than field limit"),
    ],
)
def test_hostile_trace_is_refused(tmp_path: Path, pods: bytes, message: str) -> None:
    """Amounts that no machine has, columns and cells."""
    refusal(koord(*commands(tmp_path, "pods", pods)), message, "openb_pod_list_default.csv")


@pytest.mark.parametrize("options", [(), ("--bound",), ("--departures",), ("--tune", "1.3")])
def test_nodes_without_gpus_are_refused(tmp_path: Path, options: Sequence[str]) -> None:
    """All figures of a replay are shares of the cluster's GPUs."""
    nodes = NODES.replace(b"65536,2,T4", b"65536,0,")
    nodes += b"n1,8000,65536,0,T4\n"

    refusal(
        koord(*commands(tmp_path, "nodes", nodes), *options),
        "openb_node_list_gpu_node.csv: gpu: at least one node must have GPUs",
    )


def test_a_trace_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is 256 MiB, here less."""
    monkeypatch.setattr("koordinator.simulator.research.openb.LARGEST_BYTES", 1 << 20)
    write(tmp_path / "openb_pod_list_bomb.csv.gz", gzip.compress(PODS + b"\n" * (3 << 20)))
    arguments = [*commands(tmp_path, "pods", PODS), "-w", "bomb"]

    refusal(koord(*arguments), "openb_pod_list_bomb.csv: must not be larger than 1 MiB")


def test_placements_are_never_spreadsheet_formulas(tmp_path: Path) -> None:
    """Names of a list that a spreadsheet would run are text in what is written."""
    hostile = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+1", "-1", " =1"]
    lines = "".join(f'"{name}",10,24,0,0,\n' for name in hostile)
    arguments = commands(tmp_path, "pods", PODS + lines.encode())
    assert koord(*arguments, "--placements", tmp_path / "out.csv").exit_code == 0

    cells = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert {f"'{name.strip()}" for name in hostile} < {row[1] for row in cells}
    assert not [cell for row in cells for cell in row if cell.lstrip()[:1] in tuple("=+-@\t")]


def test_unwritable_placements_file_is_an_error(tmp_path: Path) -> None:
    """With the name of the file."""
    arguments = commands(tmp_path, "pods", PODS)

    refusal(koord(*arguments, "--placements", tmp_path / "no" / "out.csv"), "no/out.csv")


@pytest.mark.slow
def test_a_hostile_kubeconfig_is_rejected(tmp_path: Path) -> None:
    """YAML aliases in the kubeconfig are counted."""
    bomb = "a0: &a0 [x,x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1},*a{i - 1}]\n" for i in range(1, 30))
    config = write(tmp_path / "config", bomb.encode())

    for command in (["schedule", "--dry-run"], ["record", tmp_path / "out.gz"]):
        refusal(koord(*command, "--kubeconfig", config), config, "aliases must expand")


def test_json_of_a_list_names_the_item(tmp_path: Path) -> None:
    """A number that no field takes is refused with its place."""
    text = json.dumps({"kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "spec": {}}]})
    text = text.replace('"spec": {}', '"spec": {"priority": ' + "9" * 5000 + "}")

    refusal(koord("schedule", "-f", write(tmp_path / "l.json", text.encode())), "l.json: items[0]")
