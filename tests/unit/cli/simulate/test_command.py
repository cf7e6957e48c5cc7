"""``koord simulate`` and ``koord demo`` from the outside: output, files, exit codes."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from koordinator.cli.main import main

EXAMPLE = "examples/small-gpu-cluster.yaml"
WORKLOAD = """
horizon: 1h
nodePools:
- {name: n, count: 2, cpu: 4, memory: 8Gi}
podStreams:
- name: s
  arrival: {poisson: {perHour: 20}}
  duration: {exponential: {mean: 10m}}
  template: {cpu: 1}
"""

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 5m
profiles:
- plugins:
    deschedule: {enabled: [{name: PodLifeTime}]}
    evict: {disabled: [{name: "*"}], enabled: [{name: DefaultEvictor}]}
    filter: {disabled: [{name: "*"}], enabled: [{name: DefaultEvictor}]}
  pluginConfig:
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 600}}
"""


GANG = """
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "4", pods: "9"}}}
---
apiVersion: scheduling.k8s.io/v1alpha1
kind: Workload
metadata: {name: job, namespace: default}
spec:
  podGroups:
  - {name: workers, policy: {gang: {minCount: 2}}}
  - {name: driver, policy: {basic: {}}}
---
apiVersion: v1
kind: Pod
metadata: {name: w-0, namespace: default}
spec: {workloadRef: {name: job, podGroup: workers}, containers: [{name: c, image: busybox}]}
---
apiVersion: v1
kind: Pod
metadata: {name: d-0, namespace: default}
spec: {workloadRef: {name: job, podGroup: driver}, containers: [{name: c, image: busybox}]}
"""


@dataclass(frozen=True, slots=True)
class Done:
    """Exit code and output of a command."""

    code: object
    stdout: str
    stderr: str


Koord = Callable[..., Done]


@pytest.fixture
def koord(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Koord:
    """Return what runs the command line in this process."""

    def run(*args: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["koord", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Done(ended.value.code, out, err.replace("\n", " "))

    return run


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD)
    return path


def test_the_result_alone_goes_to_standard_output(koord: Koord, workload: Path) -> None:
    """JSON and YAML say the same; the progress is on standard error."""
    as_json = koord("simulate", "-w", workload, "-o", "json", "--seed", "3")
    as_yaml = koord("simulate", "-w", workload, "-o", "yaml", "--seed", "3")

    report = json.loads(as_json.stdout)
    assert report["seed"] == 3
    assert report["total"] == yaml.load(as_yaml.stdout, yaml.CSafeLoader)["total"]
    assert "1 h of 1 h" in as_json.stderr


def test_a_report_is_written_and_the_run_can_be_shortened(
    koord: Koord, workload: Path, tmp_path: Path
) -> None:
    """The page is one file; ``--until`` ends the run early; the table is for people."""
    page = tmp_path / "report.html"
    done = koord("simulate", "-w", workload, "--until", "30m", "--report", page)

    assert done.code in (None, 0), done.stderr
    assert "30 min" in page.read_text()
    assert "submitted" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            WORKLOAD.replace("podStreams", "podStream"),
            'podStream: unknown field; did you mean "podS',
        ),
        (WORKLOAD.replace("cpu: 4", "cpu: four"), "nodePools[0].cpu: 'four' is not a quantity"),
        (
            WORKLOAD.replace("cpu: 1}", "cpu: -1}"),
            "podStreams[0].template.cpu: must be at least 0, got -1",
        ),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_wrong_workload_is_refused_with_its_place(
    koord: Koord, workload: Path, text: str, message: str
) -> None:
    """Exit code 2, nothing on standard output, no trace of Python."""
    workload.write_text(text)

    done = koord("simulate", "-w", workload)

    assert (done.code, done.stdout) == (2, "")
    assert f"{workload}: {message}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["simulate"], "--workload: is required"),
        (["simulate", "-w", "x.yaml", "--tune", "1"], "--tune: requires --trace openb"),
        (
            ["simulate", "-w", EXAMPLE, "--policy", "best"],
            "--policy: must be one of random, dotprod, clustering, packing, bestfit, fgd, price",
        ),
        (
            ["simulate", "-w", EXAMPLE, "--bound"],
            "--bound: requires --protocol arrivals: the bound is of pods that stay",
        ),
        (
            ["simulate", "-w", EXAMPLE, "--protocol", "arrivals", "--until", "1h"],
            "--until: cannot be used with --protocol arrivals, where pods arrive one per second",
        ),
        (
            ["simulate", "-w", EXAMPLE, "--compare", "best"],
            "--compare: must be one of random, dotprod",
        ),
        (
            ["simulate", "-w", EXAMPLE, "--compare", "no-descheduler"],
            "--compare no-descheduler: requires --migrate",
        ),
        (["simulate", "-w", EXAMPLE, "--seed", "1", "--seed", "1"], "--seed: must be given once"),
        (["simulate", "--trace", "openb"], "--data: is required with --trace"),
        (["simulate", "--trace", "other"], "2019, got 'other'"),
        (["simulate", "-w", "nowhere.yaml"], "nowhere.yaml: cannot be read: No such file"),
        (["simulate", "-w", "x.yaml", "--migrate", "-1"], "Invalid value for '--migrate'"),
        (["simulate", "-w", "x.yaml", "--migrate", "nan"], "Invalid value for '--migrate'"),
        (
            ["simulate", "-w", "x.yaml", "--migrate", "inf"],
            "--migrate: must be at least 0, got inf",
        ),
        (
            ["simulate", "-w", "x.yaml", "--migrate", "0", "--record", "r.jsonl"],
            "--record: cannot be used with --migrate",
        ),
        (
            ["simulate", "-w", "x.yaml", "--descheduler-config", "d.yaml"],
            "--descheduler-config: requires --migrate",
        ),
        (
            ["simulate", "-w", "x.yaml", "--migrate", "1", "--descheduler-config", "no.yaml"],
            "no.yaml: cannot be read",
        ),
        (
            ["simulate", "--trace", "openb", "--descheduler-config", "d.yaml"],
            "--descheduler-config: requires --migrate",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    koord: Koord, args: list[str], message: str
) -> None:
    """Exit code 2, and the option is named."""
    done = koord(*args)

    assert done.code == 2
    assert message in done.stderr


@pytest.mark.integration
def test_a_workload_is_compared_with_itself_without_colocation(
    koord: Koord, tmp_path: Path
) -> None:
    """Side by side on the terminal, on the page and as JSON; the table names both."""
    example, page = Path(__file__).parents[4] / "examples/colocation.yaml", tmp_path / "report.html"
    short = ("simulate", "-w", example, "--until", "15m", "--compare", "no-colocation")

    shown = koord(*short, "--report", page)
    both = json.loads(koord(*short, "-o", "json").stdout)

    assert shown.code in (None, 0), shown.stderr
    for text in (shown.stdout, page.read_text()):
        assert "without colocation" in text
        assert "services at risk, share of time" in text
    assert [both[run]["colocation"]["isOn"] for run in ("before", "after")] == [False, True]
    work = [both[run]["colocation"]["totals"]["bestEffortCoreHours"] for run in ("before", "after")]
    assert work[1] > work[0] > 0


def test_what_a_descheduler_did_stands_in_the_report(koord: Koord, tmp_path: Path) -> None:
    """Moves, moves per 1,000 arrivals and evictions in vain: as a table, as JSON, as a page.

    The policy of a file makes go what has run for ten minutes, proven or not.
    """
    workload, policy, page = (tmp_path / name for name in ("w.yaml", "d.yaml", "report.html"))
    workload.write_text(WORKLOAD)
    policy.write_text(POLICY)
    run = ("simulate", "-w", workload, "--migrate", "200", "--descheduler-config", policy)

    report = json.loads(koord(*run, "-o", "json").stdout)
    shown = koord(*run, "--report", page)

    moves = report["moves"]
    assert moves["atMostPer1000Arrivals"] == 200
    assert 0 < moves["per1000Arrivals"] == 1000 * moves["moves"] / moves["arrivals"] <= 200
    assert 0 < moves["inVain"] <= moves["moves"]
    assert shown.code in (None, 0), shown.stderr
    for text in (" ".join(shown.stdout.split()), page.read_text()):
        assert "Moves per 1,000 arrivals" in text
        assert "Evictions in vain" in text


def test_a_policy_that_cannot_work_is_refused_with_its_place(koord: Koord, tmp_path: Path) -> None:
    """Exit code 2, the file and the path in it."""
    workload, policy = tmp_path / "w.yaml", tmp_path / "d.yaml"
    workload.write_text(WORKLOAD)
    policy.write_text(POLICY.replace("{name: PodLifeTime}", "{name: PodLifeTimes}"))
    done = koord("simulate", "-w", workload, "--migrate", "2", "--descheduler-config", policy)

    assert (done.code, done.stdout) == (2, "")
    assert "d.yaml: profiles[0].plugins.deschedule" in done.stderr
    assert "PodLifeTimes" in done.stderr


def test_only_colocation_can_be_compared(koord: Koord, workload: Path) -> None:
    """The option is named."""
    done = koord("simulate", "-w", workload, "--compare", "no-colocation")

    assert done.code == 2
    assert "--compare no-colocation: requires a workload with the field colocation" in done.stderr


def test_workloads_of_operators_run_or_are_named(koord: Koord, tmp_path: Path) -> None:
    """The pods of a JobSet run; a Workflow is named on standard error."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    jobs = {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": template}}}]}
    described = yaml.load(WORKLOAD, yaml.CSafeLoader) | {
        "podStreams": [],
        "objects": [
            {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
            for version, kind, spec in (
                ("jobset.x-k8s.io/v1alpha2", "JobSet", jobs),
                ("argoproj.io/v1alpha1", "Workflow", {}),
            )
        ],
    }
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(described))

    done = koord("simulate", "-w", path, "-o", "json")
    assert done.code == 0
    assert json.loads(done.stdout)["total"]["scheduled"] == 1
    assert "warning: Workflow default/x: its pods are not simulated" in done.stderr


def test_feature_gates_are_those_of_the_scheduler(koord: Koord, tmp_path: Path) -> None:
    """A gang of a Workload waits for its second member; without the gate pods start alone.

    That is reported, as by koord schedule.
    """
    path = tmp_path / "gang.yaml"
    path.write_text(GANG)
    command = ["simulate", "-w", path, "--kube-version", "1.35", "-o", "json"]

    off = koord(*command)
    on = koord(*command, "--feature-gates", "GenericWorkload=true,GangScheduling=true")
    unknown = koord(*command, "--feature-gates", "GenericWorkloads=true")

    assert "ask for the gang of a Workload, which has no effect" in off.stderr
    assert json.loads(off.stdout)["total"]["scheduled"] == 2
    assert "no effect" not in on.stderr
    assert json.loads(on.stdout)["total"]["scheduled"] == 1
    assert unknown.code == 2
    assert "unrecognized feature gate: GenericWorkloads" in unknown.stderr


def test_an_unwritable_report_is_found_before_the_run(
    koord: Koord, workload: Path, tmp_path: Path
) -> None:
    """Nothing has been printed by then, and no file is left by the look."""
    done = koord("simulate", "-w", str(workload), "--report", str(tmp_path / "no" / "r.html"))
    assert (done.code, done.stdout) == (2, "")
    assert "r.html: cannot be written: No such file or directory" in done.stderr

    wrong = koord("simulate", "-w", "missing.yaml", "--report", str(tmp_path / "r.html"))
    assert wrong.code == 2
    assert not (tmp_path / "r.html").exists()


def test_a_finished_run_prints_the_path_of_its_report(
    koord: Koord, workload: Path, tmp_path: Path
) -> None:
    """On standard error: the result alone is for programs."""
    path = tmp_path / "r.html"
    done = koord("simulate", "-w", str(workload), "--report", str(path), "-o", "json")

    assert json.loads(done.stdout)["finishedS"] == 3600
    assert f"Report: {path.as_uri()}" in done.stderr


@pytest.mark.integration
def test_ctrl_c_keeps_what_there_is(tmp_path: Path) -> None:
    """The report and the figures are of the time until then; the exit code is that of SIGINT."""
    workload, path = tmp_path / "w.yaml", tmp_path / "r.html"
    workload.write_text(WORKLOAD.replace("horizon: 1h", "horizon: 4000h\nsampleEvery: 10m"))
    koord = Path(sys.executable).with_name("koord")
    command: list[str | Path] = [koord, "simulate", "-w", workload, "--report", path, "-o", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        running.stderr.readline()  # the run shows itself now and then
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=60)

    assert running.returncode == 130
    assert "ended by Ctrl-C; the figures are of" in stderr
    assert "Traceback" not in stderr
    report = json.loads(stdout)
    assert 0 < report["finishedS"] < 4_000 * 3600
    assert path.stat().st_size > 10_000


def test_recording_and_audit_are_read_by_their_commands(
    koord: Koord, workload: Path, tmp_path: Path
) -> None:
    """Only the owner may read the files, which have the report's content."""
    recording, trail = tmp_path / "run.gz", tmp_path / "deep" / "trail"
    recording.write_text("of another run, and longer than nothing")
    recording.chmod(0o644)
    done = koord("simulate", "-w", workload, "--record", recording, "--audit", trail, "-o", "json")
    placed = json.loads(done.stdout)["total"]["scheduled"]

    replayed = json.loads(koord("replay", recording, "-o", "json").stdout)
    audited = json.loads(koord("audit", trail, "-o", "json").stdout)

    assert (replayed["before"]["placed"], replayed["differences"]) == (placed, [])
    assert audited["pods"]["bound"] == placed > 0
    modes = {path.stat().st_mode & 0o777 for path in (recording, trail / "audit.jsonl")}
    assert modes == {0o600}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--record", "no/run.gz"], "no/run.gz: cannot be written: No such file or directory"),
        (["--record", "full/device"], "full/device: cannot be written: No space left on device"),
        (["--audit", "w.yaml"], "w.yaml: cannot be written: File exists"),
        (["--audit", "old"], "old: must be a folder without audit.jsonl"),
        (["--record", "run.gz", "--until", "-1h"], "--until: "),
        (["--record", "run.gz", "--audit", "new", "--config", "bad.yaml"], "bad.yaml: profiles[0]"),
        (
            ["--record", "run.gz", "--report", "run.gz"],
            "--record: must not be the file of --report",
        ),
    ],
)
def test_impossible_recordings_are_refused(
    koord: Koord,
    workload: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    message: str,
) -> None:
    """Nothing is printed, nothing is lost of what was there, nothing new is left."""
    folder = workload.parent
    monkeypatch.chdir(folder)
    (folder / "old").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "device").symlink_to("/dev/full")
    for name in ("old/audit.jsonl", "run.gz"):
        (folder / name).write_text("of another run\n")
    (folder / "bad.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {filter: {enabled: [{name: Unknown}]}}}]\n"
    )
    before = sorted(folder.rglob("*"))

    done = koord("simulate", "-w", workload, *args)

    assert (done.code, done.stdout) == (2, "")
    assert message in done.stderr
    assert sorted(folder.rglob("*")) == before
    for name in ("old/audit.jsonl", "run.gz"):
        assert (folder / name).read_text() == "of another run\n"


def test_each_of_several_runs_has_files_of_its_own(koord: Koord, tmp_path: Path) -> None:
    """A run per policy and seed: the names of its files say which it is."""
    runs = ("simulate", "-w", EXAMPLE, "--until", "10m", "--seed", "1", "--seed", "2")
    both = ("--compare", "fgd", "--compare", "packing")
    files = ("--record", tmp_path / "run.jsonl.gz", "--placements", tmp_path / "pods.csv")
    folder = ("--audit", tmp_path / "trail", "--report", tmp_path / "page.html")

    done = koord(*runs, *both, *files, *folder, "-o", "json")

    assert done.code in (None, 0), done.stderr
    expected = [f"{policy}-seed-{seed}" for policy in ("fgd", "packing") for seed in (1, 2)]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        name
        for run in expected
        for name in (f"run-{run}.jsonl.gz", f"pods-{run}.csv", f"trail-{run}", f"page-{run}.html")
    )
    rows = json.loads(done.stdout)["runs"]
    assert [(row["variant"], row["seed"]) for row in rows] == [
        ("fgd", 1),
        ("fgd", 2),
        ("packing", 1),
        ("packing", 2),
    ]


@pytest.mark.integration
@pytest.mark.parametrize(
    "source",
    [
        ("-w", EXAMPLE),
        ("-w", "examples/small-gpu-cluster.jsonl.gz"),
        ("-w", "{folder}/manifests"),
        ("--trace", "openb", "--data", "{folder}"),
    ],
    ids=["workload", "recording", "manifests", "openb"],
)
@pytest.mark.parametrize("protocol", ["arrivals", "times"])
def test_every_option_goes_with_every_source(
    koord: Koord, tmp_path: Path, source: tuple[str, ...], protocol: str
) -> None:
    """A policy of one's own, seeds, files, moves and a comparison, on whatever is simulated."""
    _write_trace(tmp_path)
    _write_manifests(tmp_path / "manifests")
    (tmp_path / "own.py").write_text(OWN_POLICY)
    where = [part.format(folder=tmp_path) for part in source]
    options = ["--plugin", tmp_path / "own.py", "--policy", "LastNode", "--seed", "3"]
    options += ["--report", tmp_path / "page.html", "--audit", tmp_path / "trail"]
    options += ["--placements", tmp_path / "pods.csv", "--protocol", protocol]
    options += ["--until", "2h"] if protocol == "times" else ["--bound"]

    done = koord("simulate", *where, *options, "-o", "json")
    moved = koord("simulate", *where, "--protocol", protocol, "--migrate", "100", "-o", "json")
    compared = koord("simulate", *where, "--protocol", protocol, "--compare", "fgd", "-o", "json")

    assert done.code in (None, 0), done.stderr
    figures = json.loads(done.stdout)
    assert figures["seed"] == 3
    if protocol == "arrivals":
        assert figures["policy"] == "LastNode"
        assert figures["gpuAllocatedPercent"] <= figures["bound"]["gpuAllocatedPercent"]
    else:
        assert figures["total"]["scheduled"] > 0
        assert figures["parameters"]["policy"] == "LastNode"
    assert (tmp_path / "page.html").stat().st_size > 0
    assert list((tmp_path / "trail").iterdir())
    assert len((tmp_path / "pods.csv").read_text().splitlines()) > 1
    assert moved.code in (None, 0), moved.stderr
    assert json.loads(compared.stdout)["runs"][0]["variant"] == "fgd"


OWN_POLICY = """
import numpy as np

from koordinator.scheduler.contract import NoArgs, PluginSpec, Reads


class LastNode:
    reads = Reads.NODE

    def score(self, snapshot, pod):
        nodes = len(snapshot.label("kubernetes.io/hostname")[0])
        return np.arange(nodes) * 100 // max(nodes, 1)


def last_node(args: NoArgs, axis) -> LastNode:
    return LastNode()


PLUGIN = PluginSpec("LastNode", NoArgs, last_node)
"""


def _write_trace(folder: Path) -> None:
    (folder / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,65536,2,A\nn2,16000,65536,2,A\n"
    )
    lines = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"]
    lines += [f"p{i},{4000 + 1000 * i},1024,1,{[1000, 460][i % 2]},,0,14400" for i in range(6)]
    (folder / "openb_pod_list_default.csv").write_text("\n".join(lines) + "\n")


def _write_manifests(folder: Path) -> None:
    """Write a node of two GPUs, and a Deployment whose second pod does not fit."""
    folder.mkdir()
    amounts = "{cpu: 8, memory: 16Gi, pods: 10, nvidia.com/gpu: 2}"
    (folder / "node.yaml").write_text(
        "apiVersion: v1\nkind: Node\n"
        "metadata: {name: a, labels: {kubernetes.io/hostname: a}}\n"
        f"status: {{allocatable: {amounts}, capacity: {amounts}}}\n---\n"
        "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\nmetadata: {name: a}\nspec:\n"
        "  devices:\n"
        + "".join(
            f"  - {{type: gpu, id: g{minor}, minor: {minor}, health: true, resources: "
            "{koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100, "
            "koordinator.sh/gpu-memory: 16Gi}}\n"
            for minor in range(2)
        )
    )
    (folder / "pods.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: train, namespace: ml}\nspec:\n"
        "  replicas: 2\n  selector: {matchLabels: {app: train}}\n  template:\n"
        "    metadata: {labels: {app: train}}\n    spec:\n      containers:\n"
        "      - {name: main, image: registry.example/train, resources: {requests: {cpu: 1}, "
        "limits: {nvidia.com/gpu: 1}}}\n"
    )


@pytest.mark.integration
def test_a_week_of_a_trace_with_departures_and_moves(koord: Koord, tmp_path: Path) -> None:
    """Pods come and go; what belongs to replays without departures is refused."""
    _write_trace(tmp_path)
    week = ("simulate", "--trace", "openb", "--data", tmp_path, "--departures")
    figures = json.loads(koord(*week, "--migrate", "50", "--seed", "1", "-o", "json").stdout)
    assert 0 < figures["gpuUsedPercent"] <= 100
    assert figures["movesPer1000Arrivals"] <= 50
    assert "% of the GPUs in use" in koord(*week).stdout
    refused = koord(*week, "--tune", "1")
    assert refused.code == 2
    assert "--tune: cannot be used with --departures" in refused.stderr
