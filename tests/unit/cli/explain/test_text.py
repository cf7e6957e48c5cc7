"""Text of explanations: lines about the queue."""

from contextlib import redirect_stdout
from io import StringIO

import pytest

from koordinator.api.codec import decode
from koordinator.api.pod import Pod
from koordinator.cli.explain.text import nothing_waits, print_explanations
from koordinator.scheduler.contract import Action, EventHint
from koordinator.scheduler.explanations import Explanation, QueueStatus, changed_object
from koordinator.scheduler.explanations.explanation import event_texts


def printed(one: Explanation) -> list[str]:
    """Return the lines that are printed of an explanation."""
    with redirect_stdout(StringIO()) as out:
        print_explanations([one])
    return out.getvalue().splitlines()


def waiting(*woken_by: str) -> Explanation:
    """Return the explanation of a pod that waits for such events."""
    queue = QueueStatus(state="unschedulable", position=1, attempts=1, woken_by=woken_by)
    return Explanation(pod="default/p", verdict="waits", summary="", queue=queue)


@pytest.mark.parametrize(
    ("woken_by", "line"),
    [
        (
            ("Fit: a Node is added, a Node changes its labels, a pod on a node is deleted",),
            "a Node, a pod on a node changes",
        ),
        (
            ("Quota: the pod itself changes, the limit that it checks has room again",),
            "the limit that it checks has room again, or the pod itself changes",
        ),
        (("Quota: the limit that it checks has room again",), None),
        (("F: a A is added, a B is added, a C is added", "G: a D changes, a E changes"), None),
    ],
)
def test_line_of_events_names_each_object_once(woken_by: tuple[str, ...], line: str | None) -> None:
    """Several events of one object are one change; other events are whole."""
    expected = (
        line
        or {
            1: "the limit that it checks has room again",
            2: "a A, a B, a C, a D and 1 more changes",
        }[len(woken_by)]
    )
    assert f"    tried again when: {expected}" in printed(waiting(*woken_by))


@pytest.mark.parametrize("action", list(Action))
def test_object_of_every_event_is_known(action: Action) -> None:
    """No action has a text whose object the short line would not recognize."""
    texts = event_texts(EventHint("Node", action))

    assert texts
    assert {changed_object(text) for text in texts} == {"a Node"}


def test_pods_that_no_scheduler_places_are_counted_in_a_live_cluster() -> None:
    """Pending pods that would be placed wait for their scheduler; manifests have none."""
    pods = [
        decode({"spec": {"containers": [], **spec}, "status": {"phase": phase}}, Pod)
        for spec, phase in (
            ({}, "Pending"),
            ({}, "Pending"),
            ({"nodeName": "n"}, "Pending"),
            ({"schedulingGates": [{"name": "g"}]}, "Pending"),
            ({}, "Succeeded"),
        )
    ]

    assert nothing_waits(pods, is_live=False) == "no pod waits"
    assert nothing_waits(pods[2:], is_live=True) == "no pod waits"
    first, second = nothing_waits(pods, is_live=True).splitlines()
    assert first == "no pod waits: 2 pods without a node would be placed now"
    assert second.endswith("koord doctor cluster")
