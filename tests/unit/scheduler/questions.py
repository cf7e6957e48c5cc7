"""Calls of one plugin for a pod, with results by node name."""

from typing import Any

import numpy as np

from koordinator.api.kubescheduler import decode_args
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import ActivePlugin, PluginSpec, Reads
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.snapshot import ClusterState, Snapshot


def built(spec: PluginSpec[Any], state: ClusterState, **args: object) -> Any:
    """Build the plugin from arguments in the form of a configuration file."""
    return spec.build(decode_args(spec.args, args, "args", "test"), state.axis)


def refused(plugin: Any, state: ClusterState, pod: Pod) -> dict[str, str]:
    """Return ``{node: reasons}`` of the nodes that the plugin rejects."""
    pod_class, snapshot = state.classes.of(pod), Snapshot(state)
    if not ActivePlugin.of("", plugin).hints.filters(snapshot, pod_class):
        return {}
    rejections = plugin.filter(snapshot, pod_class)
    return {
        name: ", ".join(reasons_of(rejections, row))
        for name, row in state.nodes.rows.items()
        if rejections.codes[row]
    }


def hopeless(plugin: Any, state: ClusterState, pod: Pod) -> set[str]:
    """Return the rejected nodes where preemption cannot help."""
    rejections = plugin.filter(Snapshot(state), state.classes.of(pod))
    never = np.broadcast_to(rejections.unresolvable, len(state.nodes))
    return {n for n, row in state.nodes.rows.items() if rejections.codes[row] and never[row]}


def scored(plugin: Any, state: ClusterState, pod: Pod, *, raw: bool = False) -> dict[str, int]:
    """Return ``{node: score}`` with all nodes feasible; empty if the plugin skips the pod."""
    pod_class, snapshot = state.classes.of(pod), Snapshot(state)
    if not ActivePlugin.of("", plugin).hints.scores(snapshot, pod_class):
        return {}
    rows = np.flatnonzero(snapshot.alive)
    if plugin.reads is Reads.CLUSTER and hasattr(plugin, "score_among"):
        scores = plugin.score_among(snapshot, pod_class, rows)
    else:
        scores = plugin.score(snapshot, pod_class)[rows]
    if hasattr(plugin, "normalize") and not raw:
        scores = plugin.normalize(scores)
    return {state.nodes.names[row]: int(n) for row, n in zip(rows, scores, strict=True)}
