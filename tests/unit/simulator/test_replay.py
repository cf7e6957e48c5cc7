"""A recording is run again: the same configuration decides the same, another one is compared."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.simulator.recordings import Session, new_pod
from tests.worlds import START_S, configuration, metric, node, pod, used

from koordinator.api.codec import encode
from koordinator.api.meta import KubeObject
from koordinator.cluster.port import Binding
from koordinator.foundation.errors import InputError
from koordinator.simulator.recording import (
    RecordedBatch,
    RecordedEvent,
    RecordingHeader,
    read_recording,
    to_line,
)
from koordinator.simulator.recording.batch import FORMAT, EventKind
from koordinator.simulator.replay import ReplayOutcomes, replay

MOST_ALLOCATED = configuration(
    pluginConfig=[
        {
            "name": "NodeResourcesFit",
            "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}},
        }
    ]
)

LOAD_AWARE = configuration(plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}})


def nodes(outcomes: ReplayOutcomes) -> dict[str, str]:
    """Return the node of each pod that got one here."""
    return {
        name: pod_outcome.node
        for name, pod_outcome in outcomes.pod_outcomes.items()
        if pod_outcome.node
    }


def test_the_same_configuration_decides_the_same() -> None:
    """Placed, waiting and preempted pods alike, each after the same time."""
    one = Session(node("a", cpu=4), node("b", cpu=4))
    one.submit(new_pod("p", cpu=2), new_pod("q", cpu=3), new_pod("huge", cpu=9))
    one.wait(30)
    one.submit(new_pod("urgent", cpu=4, priority=10))
    one.wait(30)
    outcomes = one.replayed()

    assert nodes(outcomes) == one.nodes_of
    assert outcomes.recorded == {
        name: type(pod_outcome)(
            pod_outcome.came_s, pod_outcome.node, pod_outcome.bound_s, pod_outcome.evicted
        )
        for name, pod_outcome in outcomes.pod_outcomes.items()
    }
    assert outcomes.comparison().differences == ()
    assert outcomes.pod_outcomes["default/huge"].why.startswith("0/2 nodes are available")


def test_pods_go_by_what_nodes_reported_last() -> None:
    """Reports between two decisions replace each other."""
    one = Session(node("a", cpu=4), node("b", cpu=4), config=LOAD_AWARE)
    for cpu_of_a, cpu_of_b in (("1", "3"), ("3", "1"), ("100m", "200m"), ("3", "100m")):
        one.report(metric(on="a", cpu=cpu_of_a))
        one.report(metric(on="b", cpu=cpu_of_b))
        one.wait(5)
    one.submit(new_pod("p", cpu=1))
    one.report(metric(on="b", cpu="3"))
    one.submit(new_pod("q", cpu=1))
    one.wait(20)
    one.report(metric(on="a", cpu="100m"))
    one.wait(20)
    one.report(metric(on="a", cpu="200m"))
    outcomes = one.replayed()

    assert nodes(outcomes) == one.nodes_of == {"default/p": "b", "default/q": "a"}
    assert outcomes.comparison().differences == ()
    assert outcomes.to_s == one.world.clock.now_s()


def test_a_report_helps_a_pod_that_waits_at_once() -> None:
    """The recorded scheduler ignored reports, and bound the pod immediately."""
    one = Session(node("a", cpu=4))
    one.report(metric(on="a", cpu="3"))
    one.submit(new_pod("p", cpu=1))
    for cpu in ("2900m", "100m", "200m"):
        one.wait(20)
        one.report(metric(on="a", cpu=cpu))

    assert one.replayed(LOAD_AWARE).pod_outcomes["default/p"].waited_s == 40


def test_windows_are_read_by_their_consumers() -> None:
    """An object that can't be used is reported then, with the object and the field."""
    one = Session(node("a", cpu=4), node("b", cpu=4))
    for name, cpu in (("a", "3"), ("b", "100m")):
        one.report(metric(on=name, cpu="1", windows={("5m", "p95"): used(cpu)}))
    one.submit(new_pod("p", cpu=1))
    spoilt = [line.replace(b'"100m"', b'"100x"') for line in one.lines]
    arguments = {"aggregated": {"scoreAggregationType": "p95"}}
    by_window = configuration(
        pluginConfig=[{"name": "LoadAwareScheduling", "args": arguments}],
        plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
    )

    assert nodes(one.replayed(by_window)) == {"default/p": "b"}
    assert nodes(replay(read_recording(spoilt, "spoilt"), LOAD_AWARE)) == {"default/p": "a"}
    with pytest.raises(InputError, match=r"NodeMetric b: status\.nodeMetric\.aggregatedNodeUsages"):
        replay(read_recording(spoilt, "spoilt"), by_window)


def test_another_configuration_is_compared_pod_by_pod() -> None:
    """The stock one spreads, this one packs."""
    one = Session(node("a", cpu=4), node("b", cpu=4))
    one.submit(new_pod("p", cpu=1))
    one.submit(new_pod("q", cpu=1))
    comparison = one.replayed(MOST_ALLOCATED).comparison()

    (moved,) = comparison.differences
    assert (moved.pod, moved.before.node, moved.after.node) == ("default/q", "b", "a")
    assert (comparison.same, comparison.moved, comparison.before.nodes, comparison.after.nodes) == (
        1,
        1,
        2,
        1,
    )


def test_a_pod_that_waits_longer_ends_later() -> None:
    """The run time is the recorded one; meanwhile the pod's place is taken."""
    one = Session(node("a", cpu=4), node("b", cpu=4))
    one.submit(new_pod("p", cpu=2))
    one.submit(new_pod("q", cpu=2))
    one.submit(new_pod("wide", cpu=4))  # waits: each node has one of them
    one.wait(10)
    one.finish("default/p".partition("/")[2])
    one.wait(10)
    outcomes = one.replayed(MOST_ALLOCATED)  # packs, so that wide has its place at once

    assert outcomes.pod_outcomes["default/wide"].waited_s == 0
    recorded = outcomes.recorded["default/wide"].waited_s
    assert recorded is not None
    assert recorded >= 10


def test_what_others_do_to_nodes_and_pods_happens_again() -> None:
    """Cordons, new nodes, deletions."""
    one = Session(node("a", cpu=4), pod("old", cpu=2, on="a"))
    one.cordon("a", on=True)
    one.submit(new_pod("p", cpu=3))
    one.wait(5)
    one.add(node("b", cpu=4))
    one.wait(20)
    one.delete("old")
    one.cordon("a", on=False)
    one.submit(new_pod("q", cpu=4))
    outcomes = one.replayed()

    assert nodes(outcomes) == one.nodes_of == {"default/p": "b", "default/q": "a"}


def test_pods_of_other_schedulers_go_where_they_went() -> None:
    """Foreign pods use capacity, and their number is reported."""
    one = Session(node("a", cpu=4), node("b", cpu=4))
    one.submit(new_pod("theirs", cpu=3, schedulerName="other"))
    one.world.cluster.bind([Binding("default", "theirs", "a")])
    one.happened()
    one.submit(new_pod("ours", cpu=3))
    outcomes = one.replayed()

    assert outcomes.foreign == {"other": 1}
    assert nodes(outcomes) == {"default/ours": "b"}


def test_a_second_pod_of_a_name_is_distinguished() -> None:
    """As a StatefulSet makes them."""
    one = Session(node("a", cpu=4))
    one.submit(new_pod("p", cpu=1))
    one.delete("p")
    one.submit(new_pod("p", cpu=1))

    assert set(one.replayed().pod_outcomes) == {"default/p", "default/p#2"}


def test_anonymous_recordings_have_no_names_and_the_same_decisions() -> None:
    """Every name is replaced by the same other one wherever it stands."""
    selector = {"nodeSelector": {"team": "purple"}}
    one = Session(
        node("secret-node", cpu=4, labels={"team": "purple"}),
        node("other-node", cpu=8),
        anonymous=True,
    )
    one.submit(new_pod("confidential", cpu=1, **selector))
    one.submit(new_pod("hidden", cpu=1))
    outcomes = one.replayed()
    assert one.anonymiser is not None
    name = one.anonymiser.name

    text = b"".join(one.lines)
    for word in (b"secret-node", b"other-node", b"purple", b"team", b"confidential", b"hidden"):
        assert word not in text
    assert nodes(outcomes) == {name(p): name(n) for p, n in one.nodes_of.items()}


def test_a_file_cut_off_counts_as_far_as_it_goes() -> None:
    """The recorder may have been killed in the middle of a line."""
    one = Session(node("a", cpu=4))
    one.submit(new_pod("p", cpu=1))
    one.lines[-1] = one.lines[-1][:-20]

    assert set(one.replayed().pod_outcomes) == {"default/p"}


@pytest.mark.parametrize("lines", [[], [b"{}\n"], [b'{"format":"x","startedS":1}\n'], [b"\xff\n"]])
def test_another_file_is_refused(lines: Sequence[bytes]) -> None:
    """With what is accepted."""
    with pytest.raises(InputError, match=r"koord record|koordinator-recording/v1"):
        read_recording(lines, "f")


POD = st.tuples(
    st.just("submit"),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=4),
)
DEED = st.one_of(
    POD,
    st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 45.0])),
    st.tuples(st.sampled_from(["finish", "delete"]), st.integers(0, 30)),
    st.tuples(st.just("node"), st.integers(2, 9)),
    st.tuples(st.sampled_from(["cordon", "uncordon"]), st.integers(0, 5)),
    st.tuples(st.just("report"), st.tuples(st.integers(0, 5), st.integers(0, 9))),
)


@settings(max_examples=examples(25), deadline=None)
@given(deeds=st.lists(DEED, max_size=14))
def test_replays_decide_as_was_decided(deeds: list[tuple[str, Any]]) -> None:
    """An equal configuration gives equal decisions, in whatever order events come."""
    one = Session(node("n0", cpu=8), node("n1", cpu=5), config=LOAD_AWARE)
    node_count, pods = 2, list[str]()
    for deed, what in deeds:
        if deed == "submit":
            new = [
                new_pod(f"p{len(pods) + i}", cpu=cpu, priority=priority)
                for i, (cpu, priority) in enumerate(what)
            ]
            pods += [it.metadata.name for it in new]
            one.submit(*new)
        elif deed == "wait":
            one.wait(what)
        elif deed == "node":
            one.add(node(f"n{node_count}", cpu=what))
            node_count += 1
        elif deed == "report":
            number, cpu = what
            one.report(metric(on=f"n{number % node_count}", cpu=str(cpu)))
        elif deed in ("cordon", "uncordon"):
            one.cordon(f"n{what % node_count}", on=deed == "cordon")
        elif pods and one.exists(name := pods[what % len(pods)]):
            if deed == "delete":
                one.delete(name)
            elif f"default/{name}" in one.nodes_of:
                one.finish(name)
    outcomes = one.replayed()

    assert nodes(outcomes) == one.nodes_of
    assert {
        name for name, pod_outcome in outcomes.pod_outcomes.items() if pod_outcome.evicted
    } == one.evicted


@pytest.mark.parametrize(
    ("events", "nodes"),
    [
        ([("ADDED", node("n", cpu=0)), ("MODIFIED", node("n", cpu=4))], ["n"]),
        ([("ADDED", node("n")), ("ADDED", node("m")), ("DELETED", node("n"))], ["m"]),
    ],
)
def test_what_changed_while_it_was_listed_is_as_it_was_in_the_end(
    events: list[tuple[EventKind, KubeObject]], nodes: list[str]
) -> None:
    """On a busy cluster changes are in the first batch, too."""
    events = [*events, ("ADDED", pod("p", cpu=1))]
    recorded = [RecordedEvent(kind, msgspec.Raw(encode(obj))) for kind, obj in events]
    lines = [
        to_line(RecordingHeader(FORMAT, START_S)),
        to_line(RecordedBatch(START_S, recorded)),
    ]

    replayed = replay(read_recording(lines, "busy"), configuration())

    assert [pod_outcome.node for pod_outcome in replayed.pod_outcomes.values()] == nodes
