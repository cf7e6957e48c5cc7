"""Reader of the openb GPU trace, and orders of arrival of its pods.

Source: Alibaba cluster-trace-gpu-v2023 (Weng et al., "Beware of Fragmentation", USENIX ATC 2023);
arrival protocol as kubernetes-scheduler-simulator's ``tuning``: every pod once, shuffled, then pods
drawn again from the same list until their GPUs reach a multiple of the cluster's.  The files are
the user's: nothing of them is kept here.
"""

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TextIO, TypeVar

import msgspec
import numpy as np

from koordinator.domain.gpus.mix import ANY_MODEL, WHOLE_GPU, GpuClass
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import read_packed
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.research.openb_order import (
    PUBLISHED_RATIO,
    PublishedOrder,
    order_of_all,
    published_order,
)

Value = TypeVar("Value")

LARGEST_BYTES = 256 << 20  # of a file, unpacked; the published ones have a hundredth of it
_LARGEST_AMOUNT = 2**32  # four million CPUs, 4 PiB
NODE_FILE = "openb_node_list_gpu_node.csv"
ARRIVAL_FILE = "arrival.json.gz"
_POD_FILE_PREFIX = "openb_pod_list_"
_MAX_GPUS = 64

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A line of the node list."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpu: int
    model: str  # empty where there is no GPU


@dataclass(frozen=True, slots=True)
class TracePod:
    """A line of a pod list."""

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpu: int
    gpu_milli: int  # of each GPU; 1000: whole; 0 without GPUs
    gpu_spec: tuple[str, ...] = ()  # accepted models; empty: any
    qos: str = ""
    length_s: float = 0.0  # from creation to deletion; 0: the list does not say
    created_s: float = 0.0  # since the start of the trace

    @property
    def total_gpu_milli(self) -> int:
        """Over all its GPUs."""
        return self.num_gpu * self.gpu_milli


@dataclass(frozen=True)
class OpenbTrace:
    """Nodes and pods, each sorted by name."""

    name: str
    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    @cached_property
    def gpu_milli(self) -> int:
        """Of the whole cluster."""
        return WHOLE_GPU * sum(node.gpu for node in self.nodes)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """GPU models of the cluster, sorted: the bits of ``GpuClass.models``."""
        return tuple(sorted({node.model for node in self.nodes if node.model}))

    @property
    def demand_ratio(self) -> float:
        """GPU requests of all pods as a ratio of the cluster's GPUs."""
        return sum(pod.total_gpu_milli for pod in self.pods) / max(self.gpu_milli, 1)

    def gpu_class(self, pod: TracePod) -> GpuClass:
        """Return the GPU class of a pod.  GPU models that no node has are ignored."""
        models = ANY_MODEL
        if pod.gpu_spec:
            bits = {model: 1 << bit for bit, model in enumerate(self.models)}
            models = sum(bits.get(model, 0) for model in set(pod.gpu_spec))
        return GpuClass(pod.cpu_milli, pod.num_gpu, pod.gpu_milli, models, pod.memory_mib)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Order of arrivals, and the node that wins a tie."""

    order: IntArray  # (n_arrivals,) positions in ``OpenbTrace.pods``
    names: tuple[str, ...]  # (n_arrivals,) the k-th repeat of a pod is called ``<name>-clone-<k>``
    rank: IntArray  # (n_nodes,) of ``OpenbTrace.nodes``; the lowest wins among equal nodes
    source: str  # where the order comes from, for reports


def read_trace(folder: Path, workload: str = "default") -> OpenbTrace:
    """Read a workload.

    ``workload`` is the ``<name>`` of an ``openb_pod_list_<name>.csv`` in the folder, or the path of
    a pod list. Every file may also be gzipped, with ``.gz`` after its name.  Columns that we don't
    know are ignored.

    Raises:
        InputError: a file, column or number is missing or wrong, or no node has GPUs.

    """
    pod_file, node_file = Path(workload), folder / NODE_FILE
    if "/" not in workload and not workload.endswith((".csv", ".csv.gz")):
        pod_file = folder / f"{_POD_FILE_PREFIX}{workload}.csv"
    name = pod_file.name.removesuffix(".gz").removesuffix(".csv").removeprefix(_POD_FILE_PREFIX)
    nodes = _by_name(_read(node_file, _NODE_COLUMNS, _node), node_file)
    if not any(node.gpu for node in nodes):  # all figures are shares of the cluster's GPUs
        problem = "at least one node must have GPUs, got 0 everywhere"
        raise InputError(problem, source=str(node_file), path="gpu")
    return OpenbTrace(name, nodes, _by_name(_read(pod_file, _POD_COLUMNS, _pod), pod_file))


def arrivals(
    trace: OpenbTrace, seed: int, ratio: float = PUBLISHED_RATIO, folder: Path | None = None
) -> Arrivals:
    """Return the arrivals of a seed.

    It is the order of the published experiments, which is drawn here as the simulator of the paper
    draws it; an entry ``<trace>/<seed>`` of a file ``arrival.json.gz`` in the folder goes first.
    Another ratio than theirs cuts it before the first pod that would exceed, or draws further pods
    with our own generator.
    """
    published = _published(folder, trace, seed) if folder else None
    source = f"published order {trace.name}/{seed}"
    if published is None:
        published = generated_order(trace, seed)
        source = f"generated from seed {seed}"
    wanted = round(ratio * trace.gpu_milli)
    gpu = [pod.total_gpu_milli for pod in trace.pods]
    order, rank = published.order, np.array(published.rank, np.int64)
    if ratio < PUBLISHED_RATIO:
        order = _cut(order, gpu, wanted)
        source += f", cut at {ratio:.0%}"
    elif ratio > PUBLISHED_RATIO:
        if sum(gpu) > PUBLISHED_RATIO * trace.gpu_milli:  # then the published order lacks pods
            order = order_of_all(len(gpu), seed)
        if sum(gpu[pod] for pod in order) >= wanted:
            order = _cut(order, gpu, wanted)
        else:
            order = _extended(order, gpu, wanted, np.random.default_rng(seed))
        source += f", continued to {ratio:.0%}"
    return Arrivals(np.array(order, np.int64), _names(trace, order), rank, source)


def generated_order(trace: OpenbTrace, seed: int) -> PublishedOrder:
    """Return the order that the simulator of the paper draws for a list of pods."""
    return published_order(
        [pod.total_gpu_milli for pod in trace.pods],
        [pod.gpu_milli for pod in trace.pods],
        trace.gpu_milli,
        len(trace.nodes),
        seed,
    )


# -- order -----------------------------------------------------------------------------------


def _cut(order: list[int], gpu: list[int], wanted: int) -> list[int]:
    total = np.cumsum([gpu[pod] for pod in order])
    return order[: int(np.searchsorted(total, wanted, side="right"))]


def _extended(order: list[int], gpu: list[int], wanted: int, rng: np.random.Generator) -> list[int]:
    """Draw pods until the next one would exceed; a list that was thinned is left as it is."""
    if len(order) < len(gpu) or not any(gpu):
        return order
    extended, total = list(order), sum(gpu[pod] for pod in order)
    while True:
        pod = int(rng.integers(len(gpu)))
        total += gpu[pod]
        if total > wanted:
            return extended
        extended.append(pod)


def _names(trace: OpenbTrace, order: list[int]) -> tuple[str, ...]:
    repeats = [0] * len(trace.pods)
    names = []
    for pod in order:
        name = trace.pods[pod].name
        names.append(f"{name}-clone-{repeats[pod]}" if repeats[pod] else name)
        repeats[pod] += 1
    return tuple(names)


def _published(folder: Path, trace: OpenbTrace, seed: int) -> PublishedOrder | None:
    path = folder / ARRIVAL_FILE
    if not path.exists():
        return None
    key = f"{trace.name}/{seed}"
    try:
        raw = decode_json(read_packed(path, LARGEST_BYTES), dict[str, msgspec.Raw])
        if key not in raw:
            return None
        entry = decode_json(raw[key], PublishedOrder)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"must be gzipped JSON. {error}", source=str(path), path=key) from error
    if any(not 0 <= pod < len(trace.pods) for pod in entry.order):
        raise InputError(
            f"positions must be below the {len(trace.pods)} pods of the list",
            source=str(path),
            path=f"{key}.order",
        )
    if sorted(entry.rank) != list(range(len(trace.nodes))):
        raise InputError(
            f"must rank the {len(trace.nodes)} nodes of the list. Got {len(entry.rank)} ranks.",
            source=str(path),
            path=f"{key}.rank",
        )
    return entry


# -- files -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """Line of a CSV file, which reports its own errors."""

    file: Path
    number: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def name(self, column: str) -> str:
        text = self.text(column)
        if not text:
            raise self.wrong(column, "a name")
        return text

    def whole(self, column: str, most: int | None = None) -> int:
        """Return a whole number; the published lists write some of them as ``1000.0``."""
        text = self.text(column)
        accepted = "an integer >= 0" if most is None else f"an integer in 0..{most}"
        try:
            number = float(text)
        except ValueError:
            raise self.wrong(column, accepted) from None
        if not number.is_integer() or number < 0 or (most is not None and number > most):
            raise self.wrong(column, accepted)
        if number > _LARGEST_AMOUNT:
            raise self.wrong(column, f"at most {_LARGEST_AMOUNT}")
        return int(number)

    def length_s(self) -> float:
        """Return how long the pod was there; 0 where a time is missing."""
        times = ("creation_time", "deletion_time")
        if not all(self.text(column) for column in times):
            return 0.0
        created, deleted = (self.whole(column) for column in times)
        return float(max(deleted - created, 0))

    def wrong(self, column: str, accepted: str) -> InputError:
        return InputError(
            f"must be {accepted}, got {self.text(column)!r}",
            source=str(self.file),
            subject=f"line {self.number}",
            path=column,
        )


def _node(line: _Line) -> TraceNode:
    gpu = line.whole("gpu", _MAX_GPUS)
    return TraceNode(
        line.name("sn"),
        line.whole("cpu_milli"),
        line.whole("memory_mib"),
        gpu,
        line.name("model") if gpu else "",
    )


def _pod(line: _Line) -> TracePod:
    gpus = line.whole("num_gpu", _MAX_GPUS)
    return TracePod(
        line.name("name"),
        line.whole("cpu_milli"),
        line.whole("memory_mib"),
        gpus,
        line.whole("gpu_milli", WHOLE_GPU) if gpus else 0,
        tuple(model for model in line.text("gpu_spec").split("|") if model) if gpus else (),
        line.text("qos"),
        line.length_s(),
        float(line.whole("creation_time")) if line.text("creation_time") else 0.0,
    )


def _read(path: Path, required: tuple[str, ...], parse: Callable[[_Line], Value]) -> list[Value]:
    with io.TextIOWrapper(
        io.BytesIO(read_packed(path, LARGEST_BYTES)), encoding="utf-8", newline=""
    ) as file:
        return [parse(line) for line in _lines(path, file, required)]


def _lines(path: Path, file: TextIO, required: tuple[str, ...]) -> Iterator[_Line]:
    reader = csv.DictReader(file)
    try:
        header = reader.fieldnames or ()
        for column in required:
            if header.count(column) > 1:
                raise InputError(
                    f"column {column!r} must be given only once",
                    source=str(path),
                    subject="line 1",
                )
        missing = [column for column in required if column not in header]
        if missing:
            raise InputError(
                f"column {missing[0]!r} is missing. Got {','.join(header)}; "
                f"{','.join(required)} are needed.",
                source=str(path),
                subject="line 1",
            )
        for cells in reader:
            yield _Line(path, reader.line_num, cells)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"cannot be read: {error}", source=str(path), subject=f"line {reader.line_num + 1}"
        ) from error


Named = TypeVar("Named", TraceNode, TracePod)


def _by_name(things: list[Named], path: Path) -> tuple[Named, ...]:
    ordered = sorted(things, key=lambda thing: thing.name)
    for before, thing in itertools.pairwise(ordered):
        if before.name == thing.name:
            raise InputError("names must be unique", source=str(path), subject=thing.name)
    if not ordered:
        raise InputError("at least one line is needed below the header", source=str(path))
    return tuple(ordered)
