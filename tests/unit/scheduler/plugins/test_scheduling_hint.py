"""The ``scheduling-hint`` annotation."""

import json
from typing import Any

from tests.worlds import configuration, embedded, node, pod

from koordinator.scheduler.loop import Bound, Unschedulable

KEY = "internal.scheduling.koordinator.sh/scheduling-hint"
ENABLED = {"preFilter": {"enabled": [{"name": "SchedulingHint"}]}}
FILTERING = ENABLED | {"filter": {"enabled": [{"name": "SchedulingHint"}]}}


def outcome(hint: Any, plugins: Any = FILTERING, **args: Any) -> Bound | Unschedulable:
    """Schedule a pod with the hint on three nodes; ``a`` scores best."""
    config = configuration(plugins=plugins, pluginConfig=[{"name": "SchedulingHint", "args": args}])
    text = hint if isinstance(hint, str) else json.dumps(hint)
    pending = pod("p", cpu=1, annotations={KEY: text})
    nodes = [node("a", cpu=32), node("b", cpu=4), node("c", cpu=2)]
    (result,) = embedded(*nodes, pending, config=config, report=False).run_to_fixed_point()
    assert isinstance(result, Bound | Unschedulable)
    return result


def test_preferred_nodes_are_tried_first_and_in_order() -> None:
    """The first one that exists and fits is chosen, whatever its score."""
    result = outcome({"preferredNodeNames": ["gone", "c", "b"]}, ENABLED)

    assert isinstance(result, Bound)
    assert result.node == "c"


def test_number_of_preferred_nodes_is_limited() -> None:
    """``maxHintNodes`` counts names, existing or not."""
    result = outcome({"preferredNodeNames": ["gone", "c"]}, ENABLED, maxHintNodes=1)

    assert isinstance(result, Bound)
    assert result.node == "a"


def test_named_nodes_are_the_only_candidates() -> None:
    """The best of them is chosen; if none exists the pod waits with the reason."""
    result = outcome({"nodeNames": ["b", "c"]})
    nowhere = outcome({"nodeNames": ["gone"]})

    assert isinstance(result, Bound)
    assert result.node == "b"
    assert isinstance(nowhere, Unschedulable)
    assert nowhere.message.startswith(
        "0/3 nodes are available: 3 node(s) not in the pod's scheduling hint."
    )


def test_a_malformed_hint_refuses_the_pod() -> None:
    """The message names the annotation."""
    result = outcome("{nonsense")

    assert isinstance(result, Unschedulable)
    assert KEY in result.message
