"""In what world a plugin has something to say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from koordinator.api.meta import JsonObject


@dataclass(frozen=True, slots=True)
class PluginExample:
    """What has to be there before a plugin speaks, for the suite of ``koordinator.testing``.

    The suite lays it over its random clusters.  Nodes and pods are parts of manifests, such as
    ``{"metadata": {"labels": {"example.com/price": "2"}}}``: one of them is drawn for each node or
    pod and merged into it; ``{}`` leaves some as they are.  Nodes are called n0, n1, …
    """

    args: Mapping[str, Any] = field(default_factory=dict)  # as in a configuration
    nodes: Sequence[JsonObject] = ()
    pods: Sequence[JsonObject] = ()  # also of the pods that are placed
    objects: Sequence[JsonObject] = ()  # whole manifests of other kinds
    node_objects: Sequence[JsonObject] = ()  # without a name: each node has one that bears its own
    silent: str = ""  # why no world makes the plugin speak, if that is so
    now_s: float = 0.0  # seconds since the epoch
