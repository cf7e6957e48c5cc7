"""Reading the openb trace, and who arrives when."""

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from koordinator.domain.gpus.mix import ANY_MODEL
from koordinator.foundation.errors import InputError
from koordinator.simulator.research.openb import OpenbTrace, arrivals, read_trace

NODES = """sn,cpu_milli,memory_mib,gpu,model
node-b,64000,262144,2,T4
node-a,96000,393216,4,G2
node-c,32000,131072,0,
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,mystery
pod-2,4000,8192,1,460,,LS,7
pod-1,8000,16384,1,1000.0,G2|T4|H800,BE,
pod-3,2000,4096,0,,T4,BE,
"""

SHARED = Path(os.environ.get("KOORD_SHARED", Path(__file__).parents[4] / "shared"))
OPENB = SHARED / "data" / "openb"
needs_openb = pytest.mark.skipif(
    not OPENB.exists(), reason=f"the openb trace is not at {OPENB}; KOORD_SHARED says where"
)


def write(folder: Path, pods: str = PODS, nodes: str = NODES) -> Path:
    """Write a trace called tiny."""
    (folder / "openb_node_list_gpu_node.csv").write_text(nodes)
    (folder / "openb_pod_list_tiny.csv").write_text(pods)
    return folder


def tiny(folder: Path) -> OpenbTrace:
    """Return the tiny trace."""
    return read_trace(write(folder), "tiny")


def demand(trace: OpenbTrace, order: np.ndarray) -> int:
    """Return the GPU milli that these arrivals request."""
    return sum(trace.pods[pod].total_gpu_milli for pod in order.tolist())


def test_nodes_and_pods_are_sorted_by_name_and_unknown_columns_ignored(tmp_path: Path) -> None:
    """The published orders count in this order."""
    trace = tiny(tmp_path)

    assert [node.name for node in trace.nodes] == ["node-a", "node-b", "node-c"]
    assert [pod.name for pod in trace.pods] == ["pod-1", "pod-2", "pod-3"]
    assert (trace.gpu_milli, trace.models) == (6_000, ("G2", "T4"))
    assert (trace.pods[0].gpu_milli, trace.pods[0].gpu_spec) == (1_000, ("G2", "T4", "H800"))


def test_models_are_bits_and_unknown_ones_add_nothing(tmp_path: Path) -> None:
    """A pod that names no model, or requests no GPU, takes any."""
    trace = tiny(tmp_path)

    assert [trace.gpu_class(pod).models for pod in trace.pods] == [0b11, ANY_MODEL, ANY_MODEL]


def test_optional_columns_may_be_absent(tmp_path: Path) -> None:
    """The multi-GPU lists have five columns."""
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\npod-1,1,1,8,1000\n"

    (pod,) = read_trace(write(tmp_path, pods), "tiny").pods

    assert (pod.num_gpu, pod.gpu_spec, pod.qos) == (8, (), "")


def test_a_gzipped_list_or_one_by_path_is_read_too(tmp_path: Path) -> None:
    """The name of a trace is that of its file, wherever it lies."""
    plain = tiny(tmp_path)
    packed = tmp_path / "openb_pod_list_packed.csv.gz"
    packed.write_bytes(gzip.compress(PODS.encode()))

    assert read_trace(tmp_path, "packed").pods == plain.pods
    assert read_trace(tmp_path, str(packed)) == OpenbTrace("packed", plain.nodes, plain.pods)


@pytest.mark.parametrize(
    ("before", "after", "warning"),
    [
        ("num_gpu", "gpus", r"line 1: column 'num_gpu' is missing\. Got name,.*are needed"),
        ("1,460", "x,460", r"line 2: num_gpu: must be an integer in 0\.\.64, got 'x'"),
        ("460", "1460", r"line 2: gpu_milli: must be an integer in 0\.\.1000, got '1460'"),
        ("16384", "-1", r"line 3: memory_mib: must be an integer >= 0, got '-1'"),
        ("16384", "nan", r"line 3: memory_mib: must be an integer >= 0, got 'nan'"),
        ("pod-2", "", r"line 2: name: must be a name, got ''"),
        ("pod-2", "pod-1", r"pod-1: names must be unique"),
        (PODS, PODS[: PODS.index("\n")], r"at least one line is needed"),
    ],
)
def test_a_wrong_list_is_refused_by_file_line_and_column(
    tmp_path: Path, before: str, after: str, warning: str
) -> None:
    """The message has the remedy and the place."""
    folder = write(tmp_path, PODS.replace(before, after, 1))

    with pytest.raises(InputError, match=r"openb_pod_list_tiny\.csv: " + warning):
        read_trace(folder, "tiny")


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    """The cases include a file that claims to be gzipped."""
    with pytest.raises(InputError, match=r"openb_pod_list_none\.csv: cannot be read: No such file"):
        read_trace(write(tmp_path), "none")
    (tmp_path / "broken.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"broken\.csv\.gz: line 1: cannot be read"):
        read_trace(tmp_path, str(tmp_path / "broken.csv.gz"))


def test_every_pod_arrives_once_before_any_is_drawn_again(tmp_path: Path) -> None:
    """Repeats carry the name of the trace and a number."""
    trace = tiny(tmp_path)

    made = arrivals(trace, seed=1)

    assert sorted(made.order[:3].tolist()) == [0, 1, 2]
    assert 0 <= 1.3 * trace.gpu_milli - demand(trace, made.order) < 1_000
    assert sorted(made.rank.tolist()) == [0, 1, 2]
    times = Counter(made.order.tolist())
    for pod, count in times.items():
        name = trace.pods[pod].name
        clones = {f"{name}-clone-{k}" for k in range(1, count)}
        assert clones | {name} <= set(made.names)
    assert len(set(made.names)) == len(made.names)


def test_a_seed_gives_the_same_arrivals_again(tmp_path: Path) -> None:
    """Arrivals of different seeds differ."""
    trace = tiny(tmp_path)

    assert arrivals(trace, 1).names == arrivals(trace, 1).names != arrivals(trace, 2).names


def test_larger_pod_list_loses_pods_at_random(tmp_path: Path) -> None:
    """No pod is drawn twice then."""
    rows = "".join(f"pod-{n:03},1000,1024,1,1000\n" for n in range(50))
    trace = read_trace(
        write(tmp_path, f"name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{rows}"), "tiny"
    )

    order = arrivals(trace, 1, ratio=0.5).order.tolist()

    assert len(order) == len(set(order)) == 3


def test_a_list_without_gpus_arrives_once(tmp_path: Path) -> None:
    """Drawing again would never reach the ratio."""
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\npod-1,1,1,0,0\npod-2,1,1,0,0\n"

    assert len(arrivals(read_trace(write(tmp_path, pods), "tiny"), 1).order) == 2


def publish(folder: Path, entry: object) -> None:
    """Write an arrival file with an entry for tiny/42."""
    (folder / "arrival.json.gz").write_bytes(gzip.compress(json.dumps({"tiny/42": entry}).encode()))


def test_the_published_order_wins_over_our_own(tmp_path: Path) -> None:
    """For the seeds that it has, at the published ratio."""
    trace = tiny(tmp_path)
    publish(tmp_path, {"order": [2, 0, 1, 0, 0], "rank": [1, 0, 2]})

    made = arrivals(trace, 42, folder=tmp_path)

    assert made.names == ("pod-3", "pod-1", "pod-2", "pod-1-clone-1", "pod-1-clone-2")
    assert (made.rank.tolist(), made.source) == ([1, 0, 2], "published order tiny/42")
    assert arrivals(trace, 43, folder=tmp_path).source == "generated from seed 43"


def test_another_ratio_cuts_or_continues_the_published_order(tmp_path: Path) -> None:
    """The common part of both orders is equal."""
    trace = tiny(tmp_path)
    order = [2, 0, 1, 0, 0]
    publish(tmp_path, {"order": order, "rank": [1, 0, 2]})

    cut = arrivals(trace, 42, 0.4, tmp_path)
    longer = arrivals(trace, 42, 2.0, tmp_path)

    assert cut.order.tolist() == order[:3]
    assert longer.order[:5].tolist() == order
    assert 11_000 < demand(trace, longer.order) <= 12_000


@pytest.mark.parametrize(
    ("entry", "warning"),
    [
        ({"order": [9], "rank": [0, 1, 2]}, r"tiny/42\.order: positions must be below the 3 pods"),
        ({"order": [0], "rank": [0]}, r"tiny/42\.rank: must rank the 3 nodes.*Got 1 ranks"),
        ({"order": "no"}, r"tiny/42: must be gzipped JSON"),
    ],
)
def test_a_published_order_that_does_not_fit_is_refused(
    tmp_path: Path, entry: object, warning: str
) -> None:
    """An order with other pods belongs to another trace."""
    trace = tiny(tmp_path)
    publish(tmp_path, entry)

    with pytest.raises(InputError, match=warning):
        arrivals(trace, 42, folder=tmp_path)


@needs_openb
@pytest.mark.parametrize("workload", ["default", "multigpu50"])
def test_the_order_of_a_seed_is_the_published_one(workload: str) -> None:
    """Without a file that lists it: also where pods have to be left out."""
    trace = read_trace(OPENB, workload)
    listed, drawn = arrivals(trace, 42, folder=OPENB), arrivals(trace, 42)

    assert listed.source.startswith("published")
    assert drawn.names == listed.names
    assert drawn.rank.tolist() == listed.rank.tolist()


@needs_openb
def test_the_real_trace_has_the_documented_size() -> None:
    """1,213 GPU nodes, 6,212 GPUs, 107,018 CPUs; 8,152 pods, 10,866 arrivals with seed 42."""
    trace = read_trace(OPENB)

    assert (len(trace.nodes), trace.gpu_milli, len(trace.pods)) == (1_213, 6_212_000, 8_152)
    assert sum(node.cpu_milli for node in trace.nodes) == 107_018_000
    assert len(arrivals(trace, 42, folder=OPENB).order) == 10_866
