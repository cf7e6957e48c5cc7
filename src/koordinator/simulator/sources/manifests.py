"""Manifests as a source: the nodes and pods of files and folders, also of Kueue and Volcano.

Pods come at time 0, or as their annotations say, and run until the end of the run or for the
duration of their annotation.  A pod with a node is there from the beginning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as changed
from math import inf
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from koordinator.api.labels import GPU_MODEL
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.simulator.generation import SimulationPlan
from koordinator.simulator.manifests.reader import read_input_objects
from koordinator.simulator.policies import default_configuration, shipped_configuration
from koordinator.simulator.sources.queues import Queues, is_queue_kind
from koordinator.simulator.sources.source import Source
from koordinator.simulator.stages import PodLife
from koordinator.simulator.world import Submission

ARRIVAL: Final = "simulation.koordinator.sh/arrival"  # time after the start, such as 10m
DURATION: Final = "simulation.koordinator.sh/duration"  # run time, such as 2h
HORIZON_S: Final = 3600.0
_NODES: Final = "nodes"


def manifest_source(
    paths: Sequence[Path | str], on_notice: Callable[[str], object] | None = None
) -> Source:
    """Return the source of files and folders.  Raises InputError if they have no nodes."""
    notices: list[str] = []
    given = read_input_objects([str(path) for path in paths])
    title = ", ".join(map(str, paths))
    queues = Queues(given.custom)
    if queues.is_empty:
        return object_source(given.completed(on_notice or notices.append), title, tuple(notices))
    queues.start_suspended(given)
    for kind in [kind for kind in given.unknown_kinds if is_queue_kind(kind)]:
        del given.unknown_kinds[kind]
    objects = queues.completed(given.completed(on_notice or notices.append))
    source = object_source(objects, title, tuple(notices))
    return changed(source, configuration=shipped_configuration, configuration_name="koordinator")


def object_source(
    objects: Iterable[KubeObject], title: str = "objects", notices: tuple[str, ...] = ()
) -> Source:
    """Return the source of objects.  Raises InputError if they have no nodes."""
    objects = list(objects)
    if not any(isinstance(obj, Node) for obj in objects):
        raise InputError("must have at least one node for a simulation", source=title)
    submissions = _submissions(objects)
    others = tuple(obj for obj in objects if not isinstance(obj, Pod))
    nodes = node_groups(obj for obj in others if isinstance(obj, Node))
    ends_s = [s.at_s + s.life.work_s for s in submissions]
    known_s = [end_s for end_s in ends_s if end_s < inf]

    def generate(_seed: int, until_s: float) -> SimulationPlan:
        due = tuple(each for each in submissions if each.at_s <= until_s)
        return SimulationPlan(others, nodes, due, ())

    return Source(
        title=title,
        kind="manifests",
        generate=generate,
        horizon_s=max(HORIZON_S, 2 * max(known_s, default=0.0)),
        sample_every_s=60.0,
        configuration=default_configuration,
        configuration_name="kubernetes and koordinator",
        notices=notices,
    )


def node_groups(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Return the names of nodes by GPU model; nodes without one are the group ``nodes``."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        meta = node.metadata
        groups.setdefault(meta.labels.get(GPU_MODEL) or _NODES, []).append(meta.name)
    return {name: tuple(names) for name, names in sorted(groups.items())}


def _submissions(objects: Sequence[KubeObject]) -> list[Submission]:
    placed: list[Submission] = []
    waiting: list[Submission] = []
    for obj in objects:
        if not isinstance(obj, Pod) or is_terminal(obj):
            continue
        submission = _submission(obj)
        (placed if obj.spec.node_name else waiting).append(submission)
    return [*placed, *sorted(waiting, key=lambda each: each.at_s)]


def _submission(pod: Pod) -> Submission:
    notes, owners = pod.metadata.annotations, pod.metadata.owner_references
    arrival_s = _seconds(pod, ARRIVAL, notes.get(ARRIVAL, "0s"))
    work_s = _seconds(pod, DURATION, notes[DURATION]) if DURATION in notes else inf
    is_placed = bool(pod.spec.node_name)
    kind = f"{owners[0].kind} {owners[0].name}" if owners else "pod"
    at_s = 0.0 if is_placed else arrival_s
    return Submission(at_s, _fresh(pod), kind=kind, life=PodLife(work_s=work_s))


def _fresh(pod: Pod) -> Pod:
    """Return a pod as its owner would create it; one with a node keeps it, and its devices."""
    meta = replace(pod.metadata, uid="", resource_version="", creation_timestamp=None)
    return replace(pod, metadata=meta)


def _seconds(pod: Pod, annotation: str, text: str) -> float:
    try:
        span_s = Duration.parse(text).total_seconds()
    except InputError as error:
        path = f"metadata.annotations[{annotation}]"
        raise error.within(subject=f"Pod {pod.key}", path=path) from None
    return max(span_s, 0.0)
