"""Causes of a pod in one line."""

import pytest

from koordinator.scheduler.explanations import CauseReport, Explanation, in_short


def cause(sentence: str, *on: str) -> CauseReport:
    return CauseReport(plugin="P", reason=sentence, sentence=sentence, nodes=len(on), on=on)


@pytest.mark.parametrize(
    ("causes", "text"),
    [
        ([cause("cpu", "a"), cause("memory", "a")], "cpu and memory"),
        ([cause("cpu", "a"), cause("memory", "b")], "cpu or memory"),
        ([cause("cpu", "a"), cause("taint", "b"), cause("memory", "a")], "cpu and memory or taint"),
        ([cause("quota"), cause("cpu", "a")], "quota; cpu"),
    ],
)
def test_causes_of_the_same_nodes_apply_together(causes: list[CauseReport], text: str) -> None:
    """Causes of other nodes are alternatives: ending one of them is enough."""
    one = Explanation(pod="default/p", verdict="waits", summary="", causes=tuple(causes))
    assert in_short(one) == text
