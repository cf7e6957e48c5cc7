"""Scheduler extenders: requests, and the effect of their responses."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.worlds import START_S, node, pod

from koordinator.api.kubescheduler import (
    Extender,
    KubeSchedulerConfiguration,
    decode_configuration,
)
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.errors import ExtenderError, InputError, SilentExtenderError
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.simulator import Embedded

URL = "http://127.0.0.1:1/x"
Answer = Callable[[dict[str, Any]], Any]


class Answers:
    """Extender in this process: a function per verb; bytes and errors are returned as they are."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.questions: list[tuple[str, dict[str, Any]]] = []

    def post(self, verb: str, body: bytes) -> bytes:
        question = json.loads(body)
        self.questions.append((verb, question))
        answer = self.answers[verb](question)
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.questions]


def configuration(*extenders: Mapping[str, Any], **more: Any) -> KubeSchedulerConfiguration:
    data = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": URL, **one} for one in extenders],
        **more,
    }
    return decode_configuration(data, "test")


def world(
    answers: Answers | dict[str, Answers], *extenders: Mapping[str, Any], **more: Any
) -> Embedded:
    def connect(config: Extender) -> Answers:
        return answers[config.url_prefix] if isinstance(answers, dict) else answers

    return Embedded(configuration(*extenders, **more), now_s=START_S, connect=connect)


def names(question: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in question["Nodes"]["items"]]


def only(*accepted: str) -> Answer:
    """Accept some of the nodes, with reasons for the others."""
    return among(accepted)


def among(accepted: Sequence[str]) -> Answer:
    """Accept the nodes of a sequence that may still change."""

    def answer(question: dict[str, Any]) -> Any:
        given_names = question["NodeNames"] or names(question)
        left = [name for name in given_names if name in accepted]
        failed = {name: "no licence" for name in given_names if name not in accepted}
        if question["NodeNames"] is not None:
            return {"NodeNames": left, "FailedNodes": failed}
        return {
            "Nodes": {"items": [{"metadata": {"name": name}} for name in left]},
            "FailedNodes": failed,
        }

    return answer


def outcomes(one: Embedded) -> dict[str, str]:
    """Return nodes or messages by pod."""
    by_pod = {}
    for outcome in one.run_to_fixed_point():
        if isinstance(outcome, Bound):
            by_pod[outcome.pod] = outcome.node
        elif isinstance(outcome, Unschedulable):
            by_pod[outcome.pod] = outcome.message
    return by_pod


FILTER = {"filterVerb": "filter", "nodeCacheCapable": True}


def test_filter_keeps_accepted_nodes() -> None:
    """The request has the nodes that passed all plugins, in kube-scheduler's format."""
    answers = Answers(filter=only("b"))
    one = world(answers, FILTER)
    one.load([node("small", 1), node("a", 4), node("b", 4), pod("p", 2, labels={"app": "x"})])

    assert outcomes(one) == {"default/p": "b"}
    verb, question = answers.questions[0]
    assert (verb, question["NodeNames"], question["Nodes"]) == ("filter", ["a", "b"], None)
    assert question["Pod"]["metadata"]["labels"] == {"app": "x"}


def test_full_nodes_are_sent_without_node_cache() -> None:
    """The response may have full nodes, too."""
    answers = Answers(filter=only("a"))
    one = world(answers, {"filterVerb": "filter"})
    one.load([node("a", 4, labels={"zone": "z"}), node("b", 4), pod("p", 1)])

    assert outcomes(one) == {"default/p": "a"}
    item = answers.questions[0][1]["Nodes"]["items"][0]
    assert (item["metadata"]["labels"]["zone"], item["status"]["allocatable"]["cpu"]) == ("z", "4")


def test_keys_of_a_response_are_case_insensitive() -> None:
    """Go's decoder ignores case, and extenders in other languages rely on it."""
    one = world(Answers(filter=lambda _: {"nodenames": ["b"], "failedNodes": {}}), FILTER)
    one.load([node("a", 4), node("b", 4), pod("p", 1)])

    assert outcomes(one) == {"default/p": "b"}


def test_reasons_of_extenders_are_in_the_message() -> None:
    """Reasons of plugins are in the same message."""
    one = world(Answers(filter=only()), FILTER)
    one.load([node("small", 1), node("a", 4), node("b", 4), pod("p", 2)])

    message = outcomes(one)["default/p"]
    assert message.startswith("0/3 nodes are available: 1 Insufficient cpu, 2 no licence. ")


def test_every_event_requeues_a_pod_refused_by_an_extender() -> None:
    """Any event may change the extender's result."""
    accepted: list[str] = []
    one = world(Answers(filter=among(accepted)), FILTER)
    one.load([node("a", 4), pod("p", 1)])
    one.scheduler.step()
    accepted.append("a")
    one.cluster.create(node("other", 1))
    one.clock.advance_to(START_S + 60)

    assert outcomes(one)["default/p"] == "a"


def test_refused_pod_is_retried_without_events() -> None:
    """No event occurs in the cluster."""
    accepted: list[str] = []
    one = world(Answers(filter=among(accepted)), FILTER)
    one.load([node("a", 4), pod("p", 1)])
    one.scheduler.step()
    accepted.append("a")
    wakeup_s = one.scheduler.next_wakeup_s()
    assert wakeup_s is not None
    one.clock.advance_to(wakeup_s + 10)

    assert outcomes(one)["default/p"] == "a"


def test_scores_are_added_tenfold_by_weight() -> None:
    """10 points of weight 3 outweigh the preference of plugins for empty nodes."""
    answers = Answers(prioritize=lambda _: [{"Host": "b", "Score": 10}])
    one = world(answers, {"prioritizeVerb": "prioritize", "weight": 3, "nodeCacheCapable": True})
    one.load([node("a", 64), node("b", 4), pod("p", 2)])

    assert outcomes(one) == {"default/p": "b"}


def test_single_node_is_not_scored() -> None:
    """A node that is the only choice needs no score, as in kube-scheduler."""
    answers = Answers(filter=only("a"), prioritize=lambda _: [])
    one = world(answers, {**FILTER, "prioritizeVerb": "prioritize", "weight": 1})
    one.load([node("a", 4), node("b", 4), pod("p", 1)])

    assert outcomes(one) == {"default/p": "a"}
    assert answers.verbs() == ["filter"]


def test_ignorable_extenders_run_last() -> None:
    """Each extender receives the nodes that the previous extenders accepted."""
    first, second = Answers(filter=only("a", "b")), Answers(filter=only("b", "c"))
    one = world(
        {URL: first, f"{URL}2": second},
        {**FILTER, "ignorable": True},
        {**FILTER, "urlPrefix": f"{URL}2"},
    )
    one.load([node("a", 4), node("b", 4), node("c", 4), pod("p", 1)])

    assert outcomes(one) == {"default/p": "b"}
    assert second.questions[0][1]["NodeNames"] == ["a", "b", "c"]
    assert first.questions[0][1]["NodeNames"] == ["b", "c"]


def test_extender_is_called_for_its_managed_resources_only() -> None:
    """A resource that only the extender counts is not checked on nodes."""
    answers = Answers(filter=only("b"))
    managed = [{"name": "example.com/licence", "ignoredByScheduler": True}]
    one = world(answers, {**FILTER, "managedResources": managed})
    asks = pod("asks", 1, requests={"example.com/licence": 1})
    one.load([node("a", 4), node("b", 4), pod("plain", 1), asks])

    assert outcomes(one)["default/asks"] == "b"
    assert [question["Pod"]["metadata"]["name"] for _, question in answers.questions] == ["asks"]


def _broken(_: dict[str, Any]) -> Any:
    raise ExtenderError("503 out of order")


def _silent(_: dict[str, Any]) -> Any:
    raise SilentExtenderError("no answer in 5 s")


GARBAGE: dict[str, Answer] = {
    "error": lambda _: {"Error": "no\nthanks"},
    "status": _broken,
    "no JSON": lambda _: b"<html>",
    "no object": lambda _: [1],
    "deep": lambda _: b"[" * 100_000,
    "names": lambda _: {"NodeNames": {"a": 1}},
    "strangers": lambda _: {"NodeNames": ["a", "\x1b[31mevil"]},
    "items": lambda _: {"Nodes": {"items": [{"metadata": None}]}},
    "reasons": lambda _: {"NodeNames": [], "FailedNodes": {"a": 7}},
    "silence": _silent,
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
def test_pod_waits_for_a_failing_extender(answer: Answer) -> None:
    """The message has a one-line reason; after the extender recovers, the pod is scheduled."""
    answers = Answers(filter=answer)
    one = world(answers, FILTER)
    one.load([node("a", 4), node("b", 4), pod("p", 1)])
    (failed,) = one.scheduler.step()

    assert isinstance(failed, Unschedulable)
    assert failed.message.startswith(f"extender {URL}: filter: ")
    assert "\n" not in failed.message
    assert len(failed.message) < 400
    answers.answers["filter"] = only("a")
    assert outcomes(one)["default/p"] == "a"


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
def test_ignorable_extender_blocks_no_pod(answer: Answer) -> None:
    """Errors and invalid responses of the extender have no effect."""
    one = world(Answers(filter=answer), {**FILTER, "ignorable": True})
    one.load([node("a", 4), pod("p", 1)])

    assert outcomes(one) == {"default/p": "a"}


@pytest.mark.parametrize(
    "answer",
    [_broken, _silent, lambda _: {}, lambda _: [{"Host": "a", "Score": "9"}], lambda _: [7]],
)
def test_invalid_scores_are_ignored(answer: Answer) -> None:
    """The rule is kube-scheduler's, for ignorable and other extenders."""
    one = world(Answers(prioritize=answer), {"prioritizeVerb": "prioritize", "weight": 1})
    one.load([node("a", 4), node("b", 64), pod("p", 1)])

    assert outcomes(one) == {"default/p": "b"}


def test_silent_extender_is_not_called_for_every_pod() -> None:
    """Twenty pods would wait for twenty timeouts."""
    answers = Answers(filter=_silent)
    one = world(answers, FILTER)
    one.load([node("a", 64), *(pod(f"p-{n}", 1) for n in range(20))])
    failed = one.scheduler.step()

    assert len(failed) == 20
    assert len(answers.questions) == 1
    assert "not called for 1 s after: no answer in 5 s" in str(failed[-1])


def test_gang_is_placed_where_extenders_allow() -> None:
    """All members or none are placed; the gang is retried after the extender recovers."""
    accepted = ["a", "b", "c"]
    answers = Answers(filter=among(accepted))
    one = world(
        answers,
        FILTER,
        profiles=[
            {
                "plugins": {
                    "multiPoint": {
                        "enabled": [{"name": "Coscheduling"}],
                        "disabled": [{"name": "PrioritySort"}],
                    }
                }
            }
        ],
    )
    one.load([node(name, 1) for name in "abcd"])
    one.load([group("g", 4), *members("g", 4)])
    one.run_to_fixed_point()
    assert not placed(one)

    accepted.append("d")
    one.clock.advance_to(START_S + 60)
    one.run_to_fixed_point()
    assert len(placed(one)) == 4


def test_gang_waits_for_a_failing_extender() -> None:
    """The gang is retried without an event of the cluster."""
    answers = Answers(filter=_broken)
    one = world(
        answers,
        FILTER,
        profiles=[
            {
                "plugins": {
                    "multiPoint": {
                        "enabled": [{"name": "Coscheduling"}],
                        "disabled": [{"name": "PrioritySort"}],
                    }
                }
            }
        ],
    )
    one.load([node("a", 4), group("g", 2), *members("g", 2)])
    one.scheduler.step()
    assert not placed(one)

    answers.answers["filter"] = only("a")
    one.clock.advance_to(START_S + 11)
    one.run_to_fixed_point()
    assert len(placed(one)) == 2


def victims(question: dict[str, Any]) -> dict[str, list[str]]:
    by_node = question["NodeNameToMetaVictims"]
    return {name: [it["UID"] for it in entry["Pods"]] for name, entry in by_node.items()}


PREEMPT = {"preemptVerb": "preempt", "nodeCacheCapable": True}


def full_world(answers: Answers, **more: Any) -> Embedded:
    """Return two full nodes and a more important pod."""
    one = world(answers, {**PREEMPT, **more})
    one.load([node("a", 4), node("b", 4)])
    one.load([pod("low-a", 4, on="a"), pod("low-b", 4, on="b")])
    one.load([pod("high", 4, priority=10)])
    return one


def test_preemption_respects_extenders() -> None:
    """Victims are sent by uid, and some nodes are kept."""
    answers = Answers(
        preempt=lambda q: {
            "NodeNameToMetaVictims": {"b": q["NodeNameToMetaVictims"]["b"]},
        }
    )
    one = full_world(answers)
    result = outcomes(one)

    assert result["default/high"] == "b"
    assert set(victims(answers.questions[0][1])) == {"a", "b"}
    assert one.cluster.get(Pod, "low-a", "default").spec.node_name == "a"


@pytest.mark.parametrize(
    "answer",
    [
        _broken,
        lambda _: {"NodeNameToMetaVictims": {"elsewhere": {"Pods": [{"UID": "u"}]}}},
        lambda _: {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}]}}},
        lambda _: {"NodeNameToMetaVictims": {"a": {"Pods": []}}},
        lambda _: {"NodeNameToMetaVictims": {"a": {"Pods": "all"}}},
        lambda _: {"NodeNameToMetaVictims": {}},
    ],
)
def test_no_eviction_without_a_valid_response(answer: Answer) -> None:
    """A response with pods that were not proposed is invalid."""
    one = full_world(Answers(preempt=answer))
    message = outcomes(one)["default/high"]

    assert "preemption: " in message
    for name in ("low-a", "low-b"):
        assert one.cluster.get(Pod, name, "default").metadata.deletion_timestamp is None


def test_an_extender_binds() -> None:
    """The request names the pod; its allocations are in the annotations by then."""
    one: Embedded | None = None

    def bind(question: dict[str, Any]) -> Any:
        assert one is not None
        from koordinator.cluster.port import Binding  # noqa: PLC0415 -- what the extender does

        pod_name, space = question["PodName"], question["PodNamespace"]
        one.cluster.bind([Binding(namespace=space, name=pod_name, node=question["Node"])]).results()
        return {}

    answers = Answers(bind=bind)
    one = world(answers, {"bindVerb": "bind"})
    one.load([node("a", 4), pod("p", 1)])

    assert outcomes(one) == {"default/p": "a"}
    uid = one.cluster.get(Pod, "p", "default").metadata.uid
    assert answers.questions == [
        ("bind", {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "a"})
    ]


@pytest.mark.parametrize(("ignorable", "node_name"), [(True, "a"), (False, "")])
def test_failed_bind_is_retried_or_done_by_the_scheduler(ignorable: bool, node_name: str) -> None:
    """The scheduler binds if the extender is ignorable."""
    one = world(Answers(b=lambda _: {"Error": "busy"}), {"bindVerb": "b", "ignorable": ignorable})
    one.load([node("a", 4), pod("p", 1)])
    one.scheduler.step()
    one.scheduler.step()

    assert one.cluster.get(Pod, "p", "default").spec.node_name == node_name
    one.scheduler.validate()


def test_offline_commands_refuse_extenders() -> None:
    """Ignoring them would give wrong results."""
    with pytest.raises(InputError, match=r"extenders\[0\]: must be empty"):
        Embedded(configuration(FILTER))


@pytest.mark.parametrize("url", ["", "127.0.0.1:8888", "ftp://host/x", "http://", "http://[::1"])
def test_extender_with_invalid_connection_is_refused(url: str) -> None:
    """The error occurs at start, not per pod."""
    with pytest.raises(InputError, match=r"extenders\[0\].urlPrefix"):
        configuration({**FILTER, "urlPrefix": url})


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["NodeNames", "Nodes", "items", "metadata", "name", "FailedNodes", "a"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=examples(80))
@given(filtered=_json, scored=_json, may_be_ignored=st.booleans())
def test_scheduler_survives_any_response(filtered: Any, scored: Any, may_be_ignored: bool) -> None:
    """Each pod gets an existing node or a reason."""
    answers = Answers(filter=lambda _: filtered, prioritize=lambda _: scored)
    one = world(
        answers,
        {**FILTER, "prioritizeVerb": "prioritize", "weight": 1, "ignorable": may_be_ignored},
    )
    one.load([node("a", 4), node("b", 4), pod("p", 1)])
    one.scheduler.step()
    one.scheduler.validate()

    on = one.cluster.get(Pod, "p", "default").spec.node_name
    assert on in {"", "a", "b"}
    assert on or not may_be_ignored or isinstance(filtered, dict)
    assert {it.metadata.name for it in one.cluster.list(Node).items} == {"a", "b"}
