"""``koord gang``: gangs from manifests."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.simulator import explanations
from koordinator.simulator.embedded import Embedded

MANIFEST = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train, namespace: ml}
spec: {minMember: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: w-0, namespace: ml, labels: {pod-group.scheduling.sigs.k8s.io: train}}
spec: {containers: [{name: c, image: busybox}]}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "gang.yaml"
    path.write_text(MANIFEST)
    return str(path)


def test_list_has_a_line_per_gang(manifest: str) -> None:
    """With what it needs, what is there, and why it waits."""
    done = CliRunner().invoke(app, ["gang", "list", "-f", manifest])

    assert done.exit_code == 0
    assert "ml/train" in done.stdout
    assert "needs 2 members; there were 1" in done.stdout


def test_show_names_the_members(manifest: str) -> None:
    """As data for programs."""
    done = CliRunner().invoke(app, ["gang", "show", "ml/train", "-f", manifest, "-o", "json"])

    shown = json.loads(done.stdout)
    assert (shown["gang"], shown["minMember"], shown["present"]) == ("ml/train", 2, 1)
    assert [member["pod"] for member in shown["members"]] == ["ml/w-0"]


def test_show_lists_known_gangs_for_an_unknown_one(manifest: str) -> None:
    """A name that doesn't exist is wrong input."""
    done = CliRunner().invoke(app, ["gang", "show", "other", "-f", manifest])

    assert done.exit_code != 0
    assert "must be one of ml/train" in str(done.exception)


NETWORK = """
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: ClusterNetworkTopology
metadata: {name: default}
spec:
  networkTopologySpec:
  - {topologyLayer: SpineLayer, labelKey: [spine]}
  - {topologyLayer: BlockLayer, parentTopologyLayer: SpineLayer, labelKey: [block]}
  - {topologyLayer: NodeTopologyLayer, parentTopologyLayer: BlockLayer}
---
apiVersion: v1
kind: Node
metadata: {name: n0, labels: {spine: s0, block: b3}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: near
  namespace: ml
  annotations:
    gang.scheduling.koordinator.sh/network-topology-spec: |
      {"gatherStrategy":[{"layer":"SpineLayer","strategy":"MustGather"}]}
spec: {minMember: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: a-0, namespace: ml, labels: {pod-group.scheduling.sigs.k8s.io: near}}
spec: {nodeName: n0, containers: [{name: c, image: busybox}]}
"""


def test_show_prints_the_network_topology_of_a_gang(manifest: str) -> None:
    """A line per layer with what was asked of it, and the domain of every member."""
    path = Path(manifest)
    path.write_text(MANIFEST + NETWORK)

    shown = CliRunner().invoke(app, ["gang", "show", "ml/near", "-f", manifest]).stdout
    plain = CliRunner().invoke(app, ["gang", "show", "ml/train", "-f", manifest]).stdout

    assert "SpineLayer (MustGather): s0 1" in shown
    assert "BlockLayer: s0/b3 1" in shown
    assert "DOMAIN" not in plain


def test_a_place_in_a_queue_is_shown(tmp_path: Path) -> None:
    """As the PodGroup spells it, brackets and all."""
    path = tmp_path / "gang.yaml"
    annotations = (
        'annotations: {gang.scheduling.koordinator.sh/queue-position: "3", '
        "gang.scheduling.koordinator.sh/queue-reason: 'position 3 of 9; exceedDimensions: [cpu]'}"
    )
    path.write_text(
        MANIFEST.replace(
            "name: train, namespace: ml}", f"name: train, namespace: ml, {annotations}}}", 1
        )
    )

    listed = CliRunner().invoke(app, ["gang", "list", "-f", str(path)], env={"COLUMNS": "150"})
    shown = CliRunner().invoke(app, ["gang", "show", "ml/train", "-f", str(path)])

    assert listed.stdout.splitlines()[1].split()[7] == "3"
    assert "position 3 of 9; exceedDimensions: [cpu]" in shown.stdout


WHOLE = """
---
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: "1", memory: 4Gi, pods: "20"}}
---
apiVersion: v1
kind: Pod
metadata: {name: w-1, namespace: ml, labels: {pod-group.scheduling.sigs.k8s.io: train}}
spec: {containers: [{name: c, image: busybox, resources: {requests: {cpu: "%s"}}}]}
"""


@pytest.mark.parametrize(
    ("cpu", "why"),
    [
        (
            "2",
            (
                "1 of 2 members finds a place; the next one: too little cpu is free "
                "(cpu: requests 2, 1 of 1 free)"
            ),
        ),
        ("1", "nothing: it starts when a scheduler looks at it"),
    ],
)
def test_why_a_gang_of_manifests_waits(tmp_path: Path, cpu: str, why: str) -> None:
    """The gang is tried on a copy, and bound pods stay as written."""
    path = tmp_path / "gang.yaml"
    path.write_text(MANIFEST + WHOLE % cpu)
    done = CliRunner().invoke(app, ["gang", "list", "-f", str(path), "-o", "json"])

    (gang,) = json.loads(done.stdout)["gangs"]
    assert (gang["phase"], gang["bound"], gang["why"]) == ("Scheduling", 0, why)


def test_gangs_that_wait_are_tried_on_one_copy_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has no forecasts, for which every gang would need a copy of its own."""
    copies = []

    class Counted(Embedded):
        def __init__(self, *args: Any, **options: Any) -> None:
            copies.append(self)
            super().__init__(*args, **options)

    monkeypatch.setattr(explanations, "Embedded", Counted)
    first = MANIFEST + WHOLE % "2"
    path = tmp_path / "gangs.yaml"
    path.write_text(f"{first}---\n{first.replace('train', 'other').replace('w-', 'o-')}")
    done = CliRunner().invoke(app, ["gang", "list", "-f", str(path), "-o", "json"])

    assert ["too little cpu" in gang["why"] for gang in json.loads(done.stdout)["gangs"]] == [
        True,
        True,
    ]
    assert len(copies) == 1


WORKLOAD = """
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


POD_GROUP = """
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "1", pods: "9"}}}
---
{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: train, namespace: ml},
  spec: {schedulingPolicy: {gang: {minCount: 1}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: w, namespace: ml},
  spec: {schedulingGroup: {podGroupName: train}, containers: [{name: c, image: i}]}}
"""


def test_gangs_of_workloads_are_listed_and_shown(tmp_path: Path) -> None:
    """By workload and group; the namespace may be left out; what is no gang is not there."""
    path = tmp_path / "workload.yaml"
    path.write_text(WORKLOAD)

    listed = CliRunner().invoke(app, ["gang", "list", "-f", str(path)])
    shown = CliRunner().invoke(app, ["gang", "show", "job/workers", "-f", str(path), "-o", "json"])

    assert "default/job/workers" in listed.stdout
    assert "default/job/driver" not in listed.stdout
    assert "needs 2 members; there were 1" in listed.stdout
    assert json.loads(shown.stdout)["gang"] == "default/job/workers"


@pytest.mark.parametrize("name", ["train", "ml/train", "podGroup/train", "ml/podGroup/train"])
def test_pod_groups_are_shown_and_explained_by_their_names(tmp_path: Path, name: str) -> None:
    """The segment ``podGroup`` of the name may be left out."""
    path = tmp_path / "group.yaml"
    path.write_text(POD_GROUP)
    given = [name, "-n", "ml", "-f", str(path), "-o", "json"]

    shown = json.loads(CliRunner().invoke(app, ["gang", "show", *given]).stdout)
    explained = json.loads(CliRunner().invoke(app, ["explain", "gang", *given]).stdout)

    assert shown["gang"] == explained["gangs"][0]["name"] == "ml/podGroup/train"


def test_schedule_reports_a_disabled_feature_gate(tmp_path: Path) -> None:
    """Pods of a gang go alone then, as with kube-scheduler, but not in silence."""
    path = tmp_path / "workload.yaml"
    path.write_text(WORKLOAD)
    gates = "GenericWorkload=true,GangScheduling=true"

    command = ["schedule", "-f", str(path), "--kube-version", "1.35"]
    off = CliRunner().invoke(app, command)
    on = CliRunner().invoke(app, [*command, "--feature-gates", gates])

    assert "ask for the gang of a Workload, which has no effect" in off.stderr
    assert gates in " ".join(off.stderr.split())
    assert "without effect" not in on.stderr


RACKS = """
{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: train, namespace: ml},
  spec: {schedulingPolicy: {gang: {minCount: 2}},
    schedulingConstraints: {topology: [{key: rack}]}}}
---
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {rack: r1}},
  status: {allocatable: {cpu: "4", pods: "9"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b, labels: {rack: r2}},
  status: {allocatable: {cpu: "4", pods: "9"}}}
"""
RACK_MEMBER = """
---
{apiVersion: v1, kind: Pod, metadata: {name: m%s, namespace: ml}, spec: {
  schedulingGroup: {podGroupName: train},
  containers: [{name: c, image: busybox, resources: {requests: {cpu: "3"}}}]}}
"""


def test_topology_constraint_of_a_pod_group_is_named(tmp_path: Path) -> None:
    """Each of two racks takes one of two members."""
    path = tmp_path / "racks.yaml"
    path.write_text(RACKS + "".join(RACK_MEMBER % number for number in range(2)))

    done = CliRunner().invoke(app, ["gang", "list", "-f", str(path), "-o", "json"])

    (gang,) = json.loads(done.stdout)["gangs"]
    assert gang["why"] == (
        "2 of 2 members find a place, but not together: no nodes that share a value of rack have "
        "room for PodGroup ml/train; the best, r1, for 1 of 2"
    )


PREEMPTING = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train, namespace: ml}
spec: {minMember: 2}
"""


def test_gang_that_starts_by_preemption_names_the_victims_in_all_views(tmp_path: Path) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}
    documents = [*yaml.safe_load_all(PREEMPTING)]
    for number in (0, 1):
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        node = {"metadata": {"name": f"n{number}"}, "status": {"allocatable": amounts}}
        low = {
            "metadata": {"name": f"low-{number}", "namespace": "ml"},
            "spec": {"nodeName": f"n{number}", "containers": [container]},
            "status": {"phase": "Running"},
        }
        labels = {"pod-group.scheduling.sigs.k8s.io": "train"}
        member = {
            "metadata": {"name": f"w-{number}", "namespace": "ml", "labels": labels},
            "spec": {
                "schedulerName": "koord-scheduler",
                "priorityClassName": "high",
                "containers": [container],
            },
        }
        documents += [
            {"apiVersion": "v1", "kind": kind, **rest}
            for kind, rest in (("Node", node), ("Pod", low), ("Pod", member))
        ]
    path = tmp_path / "world.yaml"
    path.write_text(yaml.safe_dump_all(documents))

    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "-f", str(path)])
        assert done.exit_code == 0, done.output
        return " ".join(done.stdout.split())

    evicted = "after the preemption of 2 pods (ml/low-0, ml/low-1)"
    assert f"nothing: it starts {evicted}" in printed("gang", "show", "ml/train")
    assert f"its pods would be placed on 2 nodes (n0, n1) now, {evicted}" in printed(
        "explain", "gang", "ml/train"
    )
    for number in (0, 1):
        text = printed("explain", "pod", f"ml/w-{number}")
        assert "would be placed on n" in text
        assert evicted in text
