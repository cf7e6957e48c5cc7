"""``koord explain`` on manifests: pods with known causes, every one named and none invented."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.installed import ROOT, scheduler_configuration
from typer.testing import CliRunner

from koordinator.cli import output
from koordinator.cli.explain.text import print_explanations
from koordinator.cli.main import app
from koordinator.foundation.errors import InputError
from koordinator.simulator.explanations import explain_pods
from koordinator.simulator.manifests.reader import read_manifests

PENDING = ROOT / "tests/golden/explain/pending.yaml"
NOW = "2026-01-01T12:00:10Z"

SELECTOR = "node(s) didn't match Pod's node affinity/selector"
CPU, TAINTED = "Insufficient cpu", "node(s) had untolerated taint(s)"
WITHOUT_RESERVATION = (
    "remove its reservation affinity (annotation scheduling.koordinator.sh/reservation-affinity)"
)
NO_RESERVATION = "node(s) no reservations match reservation affinity"

#: By pod: obstacles on the node that it selects, or on all of them; and the text about it.
ON_NODE: dict[str, tuple[str, set[str], str]] = {
    "resources": ("web-2", {CPU}, "cpu: requests 2, 1 of 4 free"),
    "taint": ("infra", {TAINTED}, "dedicated=infra:NoSchedule"),
    "taint-and-resources": ("infra", {TAINTED, CPU}, "cpu: requests 3, 2 of 4 free"),
    "affinity": ("gpu", {SELECTOR}, "disk In ssd"),
    "nodename": ("gpu", {SELECTOR}, "metadata.name In gone"),
    "spread": (
        "web-1",
        {"node(s) didn't match pod topology spread constraints"},
        "zone=a has 2 pods with app=web, another domain 0, maxSkew is 1",
    ),
    "anti-affinity": (
        "web-1",
        {"node(s) didn't match pod anti-affinity rules"},
        (
            "2 pods with app=web, which its podAntiAffinity excludes, are in the same "
            "kubernetes.io/hostname"
        ),
    ),
    "port": (
        "web-1",
        {"node(s) didn't have free ports for the requested pod ports"},
        "TCP 8080 is taken",
    ),
    "load": (
        "hot",
        {"node(s) cpu usage exceed threshold"},
        "cpu: 7600m in use plus 850m of the pod, the threshold is 5239m",
    ),
    "device-broken": (
        "gpu",
        {"Insufficient gpu devices"},
        "gpu: requests 2, 1 of 2 have enough left, 1 is unhealthy (minor 1)",
    ),
    "numa": (
        "numa",
        {"Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"},
        "requests 6 CPUs of one NUMA node; the largest free amount of one is 4 CPUs",
    ),
    "reservation-small": (
        "infra",
        {"Reservation(s) Insufficient cpu, requested: 3000, used: 0, capacity: 2000"},
        "capacity: 2000",
    ),
}
WHATEVER_THE_NODE = {
    "volume": ("VolumeRestrictions, VolumeBinding, VolumeZone", 'claim "data" not found'),
    "gate": ("SchedulingGates", "waiting for scheduling gates: [example.com/approval]"),
    "quota": ("ElasticQuota", "exceedDimensions: [cpu]"),
    "gang-short": ("Coscheduling", "gang default/short needs 3 members"),
    "reservation-other": ("Reservation", NO_RESERVATION),
    "near-0": ("Coscheduling", "best was BlockLayer/b4 with room for 1 of 2"),
    "near-1": ("Coscheduling", "best was BlockLayer/b4 with room for 1 of 2"),
    "other-scheduler": ("", "spec.schedulerName is 'volcano'"),
}
ALONE = set(WHATEVER_THE_NODE) - {"near-0", "near-1"}  # a node takes them but for that


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ask about all of them at once, with the configuration that is installed."""
    configuration = scheduler_configuration()
    del configuration["leaderElection"]
    configuration["profiles"][0]["schedulerName"] = "default-scheduler"
    path = tmp_path_factory.mktemp("explain") / "config.yaml"
    path.write_text(yaml.safe_dump(configuration))
    done = CliRunner().invoke(app, asking(path, "-o", "json"))
    assert done.exception is None, done.exception
    return {one["pod"].removeprefix("default/"): one for one in json.loads(done.stdout)["pods"]}


def asking(config: Path, *more: str) -> list[str]:
    return ["explain", "pod", "-f", str(PENDING), "--config", str(config), "--now", NOW, *more]


def test_exactly_these_pods_wait(explained: dict[str, Any]) -> None:
    """Each pod waits for a known cause."""
    assert set(explained) == {*ON_NODE, *WHATEVER_THE_NODE}
    assert {one["verdict"] for one in explained.values()} == {"waits"}


@pytest.mark.parametrize("name", ON_NODE)
def test_every_cause_on_a_node_is_named_and_none_is_invented(
    explained: dict[str, Any], name: str
) -> None:
    """The node that the pod selects comes first of those with the same obstacles."""
    on, reasons, detail = ON_NODE[name]
    result = explained[name]

    (near,) = (it for it in result["nearest"] if it["node"] == on)
    assert set(near["reasons"]) == reasons
    assert detail in "; ".join(near["details"])
    decisive = {it["reason"] for it in result["causes"] if it.get("decisive", True)}
    assert reasons <= decisive
    assert not [it for it in result["causes"] if not it.get("nodes")]


@pytest.mark.parametrize("name", WHATEVER_THE_NODE)
def test_a_cause_that_holds_everywhere_is_the_only_one(
    explained: dict[str, Any], name: str
) -> None:
    """A reason of some nodes is no cause while another node would accept the pod."""
    plugin, reason = WHATEVER_THE_NODE[name]
    everywhere = [it for it in explained[name]["causes"] if not it.get("nodes")]

    assert [it["plugin"] for it in everywhere] == [plugin]
    assert reason in everywhere[0]["reason"]
    if name in ALONE:
        assert explained[name]["causes"] == everywhere


def test_remedies_can_be_carried_out(explained: dict[str, Any]) -> None:
    """No change makes a node another one, or preempts pods of a higher priority."""
    texts = {
        name: [it["text"] for it in one.get("remedies", ())] for name, one in explained.items()
    }

    assert texts["gate"] == [
        "remove the scheduling gates [example.com/approval]: a task of their controller"
    ]
    assert "remove the taint from infra (dedicated=infra:NoSchedule)" in texts["taint"]
    assert texts["quota"][0].startswith("raise the max of quota team by cpu:500m")
    assert texts["nodename"] == []
    assert texts["reservation-small"] == [f"{WITHOUT_RESERVATION}: gpu takes it then"]
    assert all("add a node" not in text for text in texts["spread"])


def test_the_same_for_people(tmp_path: Path) -> None:
    """Causes, nodes and remedies as text."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}"
    )
    done = CliRunner().invoke(app, asking(config, "taint"))

    assert "default/taint waits: none of 6 nodes takes it" in done.stdout
    assert (
        "  1 node: the node has a taint that the pod does not tolerate "
        "(infra: dedicated=infra:NoSchedule) [TaintToleration]\n"
    ) in done.stdout
    assert "- remove the taint from infra" in done.stdout
    assert "- add to its tolerations: [{key: dedicated" in done.stdout


ALIKE = """
{apiVersion: v1, kind: Node, metadata: {name: n, labels: {kubernetes.io/hostname: n}},
 status: {allocatable: {cpu: "2", memory: 4Gi, pods: "20"}}}
"""
POD = """---
{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c,
 resources: {requests: {cpu: "%s"}}}]}}
"""


@pytest.fixture
def many(tmp_path: Path) -> str:
    """Return manifests of a small node, four equal pods that are too large and one larger."""
    path = tmp_path / "many.yaml"
    pods = [POD % (f"train-{n}", 3) for n in range(4)] + [POD % ("huge", 9)]
    path.write_text(ALIKE + "".join(pods))
    return str(path)


def test_equal_pods_are_explained_together(many: str) -> None:
    """For people; programs get each of them."""
    done = CliRunner().invoke(app, ["explain", "pod", "-f", many])
    as_data = CliRunner().invoke(app, ["explain", "pod", "-f", many, "-o", "json"])

    heads = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert heads == [
        "default/huge waits: none of 1 nodes takes it",
        (
            "default/train-0, default/train-1, default/train-2 and 1 more wait: "
            "none of 1 nodes takes it"
        ),
    ]
    assert len(json.loads(as_data.stdout)["pods"]) == 5


def test_the_overview_counts_pods_by_cause(many: str) -> None:
    """With the affected members, and the remedies."""
    done = CliRunner().invoke(app, ["explain", "pods", "-f", many])
    as_data = CliRunner().invoke(app, ["explain", "pods", "-f", many, "-o", "json"])

    assert done.stdout.splitlines() == [
        "5 pods wait, for one reason",
        "5 pods: too little cpu is free",
        "    pods: default/huge, default/train-0, default/train-1 and 2 more",
        "    such as n: cpu: requests 3, 2 of 2 free",
        "    would help (default/train-0): request at most 2 of cpu: n has that free",
        "koord explain pod NAMESPACE/NAME explains one of them in full",
    ]
    document = json.loads(as_data.stdout)
    (cause,) = document["causes"]
    assert (document["waiting"], cause["cause"]) == (5, "too little cpu is free")
    assert cause["plugins"] == ["NodeResourcesFit"]
    assert sorted(cause["pods"]) == ["default/huge", *(f"default/train-{n}" for n in range(4))]


GANG_LABEL = "pod-group.scheduling.sigs.k8s.io"


def waiting_pod(name: str, gang: str = "", **more: str) -> dict[str, Any]:
    """Return a pod of the gang that requests these amounts."""
    amounts = {"requests": more, "limits": more}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {GANG_LABEL: gang} if gang else {},
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": amounts}],
        },
    }


@pytest.mark.parametrize(
    ("size", "listed"),
    [
        (2, "gang default/train (2 pods)"),
        (4, "gang default/train (4 pods)"),
    ],
)
@pytest.mark.parametrize("single", [0, 1, 5])
def test_gangs_are_marked_in_the_overview(
    size: int, listed: str, single: int, tmp_path: Path
) -> None:
    """In place of their pods; what is not named is counted in pods."""
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": size},
    }
    members = [waiting_pod(f"t-{n}", "train", cpu="3") for n in range(size)]
    others = [waiting_pod(f"z-{n}", cpu="3") for n in range(single)]
    path = tmp_path / "gang.yaml"
    path.write_text(ALIKE + "---\n" + yaml.safe_dump_all([group, *others, *members]))
    done = CliRunner().invoke(app, ["explain", "pods", "-f", str(path)])
    as_data = CliRunner().invoke(app, ["explain", "pods", "-f", str(path), "-o", "json"])

    named = [listed, *(f"default/z-{n}" for n in range(single))]
    more = f" and {single - 2} more" if single > 2 else ""
    assert f"    pods: {', '.join(named[:3])}{more}" in done.stdout.splitlines()
    (cause,) = json.loads(as_data.stdout)["causes"]
    assert cause["gangs"] == {"default/train": size}
    assert len(cause["pods"]) == size + single


def test_pods_that_lack_devices_are_apart(tmp_path: Path) -> None:
    """A label on a node without GPUs helps the pod without GPUs alone."""
    pods = [
        waiting_pod("web", cpu="1"),
        waiting_pod("train", **{"cpu": "1", "nvidia.com/gpu": "1"}),
    ]
    for pod in pods:
        pod["spec"]["nodeSelector"] = {"pool": "mine"}
    gpu_node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu"},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "9", "nvidia.com/gpu": "1"}
        },
    }
    path = tmp_path / "apart.yaml"
    path.write_text(ALIKE + "---\n" + yaml.safe_dump_all([gpu_node, *pods]))
    as_data = CliRunner().invoke(app, ["explain", "pods", "-f", str(path), "-o", "json"])

    labels = "the node's labels do not match the pod's node affinity or selector"
    causes = json.loads(as_data.stdout)["causes"]
    assert {one["cause"]: one["pods"] for one in causes} == {
        labels: ["default/web"],
        f"{labels}; besides, on some nodes too little nvidia.com/gpu is free": ["default/train"],
    }


def test_no_pod_is_pending(tmp_path: Path) -> None:
    """An overview without pods has a sentence."""
    path = tmp_path / "empty.yaml"
    path.write_text(ALIKE)
    done = CliRunner().invoke(app, ["explain", "pods", "-f", str(path)])

    assert done.stdout == "no pod waits\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian-1", "there is no pod default/trian-1 (did you mean default/train-1"),
        ("ml/train-1", "there is no pod ml/train-1 (did you mean default/train-1"),
        ("reservation/x", "there is no reservation reservation/x; waiting pods: default/huge"),
    ],
)
def test_a_missing_pod_is_an_error(many: str, name: str, message: str) -> None:
    """With the names that come near; it is the caller's mistake."""
    done = CliRunner().invoke(app, ["explain", "pod", name, "-f", many])

    assert isinstance(done.exception, InputError)  # which ends the program with 2
    assert message in str(done.exception)


def test_on_a_terminal_lines_end_where_it_ends(
    many: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between words, and further in than they begin."""
    (one,) = explain_pods(read_manifests([many], None), ["default/huge"])
    monkeypatch.setattr(output, "terminal_width", lambda: 60)
    print_explanations([one])

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("  ") for line in lines[1:])


GANG = """
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "2", pods: "9"}}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train, namespace: default}
spec: {minMember: 3}
"""
MEMBER = """
---
apiVersion: v1
kind: Pod
metadata: {name: m%d, namespace: default, labels: {pod-group.scheduling.sigs.k8s.io: train}}
spec:
  schedulerName: koord-scheduler
  containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
"""


def test_a_gang_is_explained_by_its_name(tmp_path: Path) -> None:
    """As by the name of any member; a gang that is not there is the caller's mistake."""
    path = tmp_path / "gang.yaml"
    path.write_text(GANG + "".join(MEMBER % number for number in range(3)))
    command = ["explain", "gang", "-f", str(path)]

    (gang,) = json.loads(CliRunner().invoke(app, [*command, "-o", "json"]).stdout)["gangs"]
    assert gang["gang"].startswith("gang group default/train: 2 of 3 members find a place")
    done = CliRunner().invoke(app, [*command, "train"])
    assert done.stdout.startswith("gang default/train (3 pods) waits: ")
    assert "set minMember of PodGroup default/train to 2" in done.stdout
    missing = CliRunner().invoke(app, [*command, "other"]).exception
    assert "must be one of default/train, got 'default/other'" in str(missing)
