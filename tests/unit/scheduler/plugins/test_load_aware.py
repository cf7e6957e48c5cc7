"""Load-aware placement by measured usage."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import NewEmbedded, World
from tests.unit.scheduler.questions import built, refused, scored
from tests.unit.scheduler.test_gangs import placed
from tests.worlds import START_S, add, configuration, embedded, metric, node, pod, used

from koordinator.api.meta import Condition
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import InputError
from koordinator.scheduler.contract import Action, ClusterEvent, QueueingHint
from koordinator.scheduler.loop import Unschedulable
from koordinator.scheduler.plugins.load_aware import PLUGIN
from koordinator.scheduler.snapshot import ClusterState

PROD = {"koordinator.sh/priority-class": "koord-prod"}
THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
CPU, MEMORY = "node(s) cpu usage exceed threshold", "node(s) memory usage exceed threshold"
AGGREGATED = "node(s) cpu aggregated usage exceed threshold"
EXPIRED = "node(s) nodeMetric expired"


def why(state: ClusterState, pending: Pod, **args: Any) -> dict[str, str]:
    return refused(built(PLUGIN, state, **args), state, pending)


def scores(state: ClusterState, pending: Pod, **args: Any) -> dict[str, int]:
    return scored(built(PLUGIN, state, **args), state, pending)


# -- filter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("cpu", "verdict"), [("4450m", {}), ("4550m", {"n": CPU})])
def test_the_rounded_percentage_counts(world: World, cpu: str, verdict: dict[str, str]) -> None:
    """65 is the last accepted percentage of cpu; 65.5 rounds up. The pod counts with 85 %."""
    state = world(node("n", cpu=10, memory="100Gi"), metric("n", cpu=cpu))

    assert why(state, pod("new", cpu="2353m")) == verdict


def test_only_the_first_resource_above_its_limit_is_named(world: World) -> None:
    """In alphabetical order."""
    state = world(
        node("both", cpu=10, memory="10Gi"),
        metric("both", cpu=9, memory="9900Mi"),
        node("memory", cpu=10, memory="10Gi"),
        metric("memory", cpu=1, memory="9900Mi"),
    )

    assert why(state, pod("new", cpu=1)) == {"both": CPU, "memory": MEMORY}


def test_a_threshold_of_zero_is_not_checked(world: World) -> None:
    """Resources without threshold, and those that the node lacks, are not checked either."""
    state = world(node("n", cpu=1, memory="1Gi"), metric("n", cpu=1, memory="1Gi"))

    assert why(state, pod("new"), usageThresholds={"cpu": 0, "memory": 0}) == {}
    assert why(state, pod("new"), usageThresholds={"example.com/foo": 1}) == {}


def test_node_without_measurement_accepts_pods(world: World) -> None:
    """There is no NodeMetric, or one without status; one without time counts as expired."""
    silent = NodeMetric(metadata=metric("silent").metadata)
    state = world(
        node("none"), node("empty"), metric("empty", nodeUsage={}), node("silent"), silent
    )

    assert why(state, pod("new")) == {"silent": EXPIRED}
    assert why(state, pod("new"), filterExpiredNodeMetrics=False) == {}


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        ({}, {"old": EXPIRED}),
        ({"enableScheduleWhenNodeMetricsExpired": True}, {}),
        ({"filterExpiredNodeMetrics": False}, {"old": CPU}),
        ({"nodeMetricExpirationSeconds": 1000}, {"old": CPU}),
        ({"usageThresholds": {"cpu": 0}}, {}),
    ],
)
def test_arguments_decide_whether_an_expired_report_rejects(
    world: World, args: dict[str, Any], verdict: dict[str, str]
) -> None:
    """An expired report rejects, passes or still counts, as configured."""
    state = world(node("old"), metric("old", cpu=8, at="22:09:00"))
    state.advance(START_S)

    assert why(state, pod("new"), **args) == verdict


@pytest.mark.parametrize("wakes", [True, False])
def test_pod_is_tried_again_when_the_report_that_refused_it_expires(*, wakes: bool) -> None:
    """Where nodes with expired reports are accepted; otherwise an expiry changes nothing."""
    args = {"enableScheduleWhenNodeMetricsExpired": wakes, "usageThresholds": {"cpu": 50}}
    config = configuration(
        pluginConfig=[{"name": "LoadAwareScheduling", "args": args}],
        plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
    )
    one = embedded(node("n", 10), metric("n", cpu=9), pod("p", 1), config=config)
    one.run_to_fixed_point()
    assert placed(one) == {}
    due_s = one.scheduler.next_wakeup_s()  # 20 s old at START_S
    one.clock.advance_to(START_S + 160)
    one.run_to_fixed_point()

    assert placed(one) == ({"p": "n"} if wakes else {})
    assert (due_s == START_S + 160) == wakes
    assert one.scheduler.attempts == (2 if wakes else 1)


def test_a_report_expires_as_time_passes(world: World) -> None:
    """Exactly after its seconds, until the next one comes."""
    state = world(node("n"), metric("n", cpu=1))  # 20 s old at START_S
    plugin = built(PLUGIN, state)
    verdicts = []
    for later_s in (0, 159, 160):
        state.advance(START_S + later_s)
        verdicts.append(refused(plugin, state, pod("new")))
    add(state, metric("n", cpu=1, at="22:16:00"))

    assert verdicts == [{}, {}, {"n": EXPIRED}]
    assert refused(plugin, state, pod("new")) == {}


def test_a_report_counts_again_when_a_fast_clock_is_corrected(world: World) -> None:
    """Without a new report; ``validate`` compares with what follows from the time."""
    state = world(node("n"), metric("n", cpu=1))  # 20 s old at START_S
    plugin = built(PLUGIN, state)
    verdicts = []
    for now_s in (START_S + 1200, START_S + 600, START_S):
        state.advance(now_s)
        verdicts.append(refused(plugin, state, pod("new")))
        state.validate()

    assert verdicts == [{"n": EXPIRED}, {"n": EXPIRED}, {}]


def test_daemon_set_pods_pass_everywhere(world: World) -> None:
    """Pods of a DaemonSet cannot run on another node."""
    state = world(node("n"), metric("n", cpu=8))

    assert why(state, pod("daemon", owner=("DaemonSet", "d"))) == {}


def test_prod_pods_have_their_own_thresholds(world: World) -> None:
    """Thresholds of prod pods apply to usage of prod pods; other pods use the total usage."""
    state = world(
        node("n", cpu=10),
        pod("web", cpu=1, on="n", labels=PROD),
        metric("n", cpu=9, pods={"web": used("2"), "other": used("6")}, prod=["web", "other"]),
    )
    args: dict[str, Any] = {"prodUsageThresholds": {"cpu": 30}}

    assert why(state, pod("small", cpu="1100m", labels=PROD), **args) == {}
    assert why(state, pod("large", cpu=2, labels=PROD), **args) == {"n": CPU}
    assert why(state, pod("other"), **args) == {"n": CPU}


def test_the_system_may_count_as_prod(world: World) -> None:
    """With prodUsageIncludeSys."""
    state = world(node("n", cpu=10), metric("n", cpu=1, system=used("4")))
    args: dict[str, Any] = {"prodUsageThresholds": {"cpu": 30}}

    assert why(state, pod("p", labels=PROD), **args) == {}
    assert why(state, pod("p", labels=PROD), **args, prodUsageIncludeSys=True) == {"n": CPU}


def test_a_window_of_usage(world: World) -> None:
    """The window is the configured one, the longest with data, or the latest usage."""
    args = {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95"}
    windows = {("5m", "p95"): used("8"), ("1h", "p95"): {}, ("15m", "p95"): used("1")}
    state = world(
        node("n", cpu=10), metric("n", cpu=2, windows=windows), node("m"), metric("m", cpu=7)
    )
    five = {**args, "usageAggregatedDuration": "5m"}

    assert why(state, pod("new"), aggregated=args) == {"m": AGGREGATED}
    assert why(state, pod("new"), aggregated=five) == {"n": AGGREGATED}


def test_missing_window_counts_full_estimates(world: World) -> None:
    """Estimates of all pods of the node count because there is no measurement."""
    args = {
        "usageThresholds": {"cpu": 50},
        "usageAggregationType": "p95",
        "usageAggregatedDuration": "5m",
    }
    state = world(
        node("n", cpu=10),
        pod("p", cpu=6, on="n"),
        metric("n", cpu=9, pods={"p": used("9")}),
    )

    assert why(state, pod("new", cpu="400m"), aggregated=args) == {"n": AGGREGATED}
    assert (
        why(state, pod("new", cpu="400m"), aggregated=args | {"usageThresholds": {"cpu": 55}}) == {}
    )


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        ({"usageThresholds": {"cpu": 90}}, {}),
        ({"usageThresholds": {"cpu": 60}}, {"n": CPU}),
        ({"prodUsageThresholds": {"cpu": 2}}, {"n": CPU}),
        (
            {"aggregatedUsage": {"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95"}},
            {"n": AGGREGATED},
        ),
        ({"aggregatedUsage": {"usageThresholds": {"cpu": 10}}}, {}),
        ({}, {}),
    ],
)
def test_node_annotation_overrides_thresholds(
    world: World, own: dict[str, Any], verdict: dict[str, str]
) -> None:
    """Each part that the annotation defines completely replaces the arguments."""
    state = world(
        node("n", cpu=10, annotations={THRESHOLDS: json.dumps(own)}), metric("n", cpu="6200m")
    )

    assert why(state, pod("new", labels=PROD)) == verdict


def test_malformed_thresholds_are_reported(embedded: NewEmbedded) -> None:
    """The thresholds of the arguments apply."""
    state = ClusterState()
    plugin = built(PLUGIN, state)
    one = embedded(node("n", annotations={THRESHOLDS: "{"}), metric("n", cpu=8))
    add(state, node("n", annotations={THRESHOLDS: "{"}), metric("n", cpu=8))

    assert refused(plugin, state, pod("new")) == {"n": CPU}
    (problem,) = one.state.load.problems[0]
    assert THRESHOLDS in str(problem)


def test_amplified_nodes_are_measured_by_what_they_have(world: World) -> None:
    """The annotation has the raw allocatable."""
    raw = {"node.koordinator.sh/raw-allocatable": json.dumps({"cpu": "4"})}
    state = world(node("n", cpu=8, annotations=raw), metric("n", cpu=3))

    assert why(state, pod("new")) == {"n": CPU}


# -- score -----------------------------------------------------------------------------------


def test_score_is_the_mean_free_share(world: World) -> None:
    """20 of 64 CPUs and 60 of 256 GiB are used; the pod counts with 6.8 and 11.2."""
    state = world(node("n", cpu=64, memory="256Gi"), metric("n", cpu=20, memory="60Gi"))
    pending = pod("new", cpu=8, memory="16Gi")

    assert scores(state, pending) == {"n": 65}
    weighted = {"dominantResourceWeight": 2, "resourceWeights": {"cpu": 1, "memory": 1}}
    assert scores(state, pending, **weighted) == {"n": 61}
    assert scores(state, pending, dominantResourceWeight=1) == {"n": 58}


def test_the_scarcest_resource_may_be_one_without_weight(world: World) -> None:
    """Every resource that is named anywhere counts for the dominant weight."""
    state = world(
        node("n", cpu=10, memory="100Gi", **as_keywords({"example.com/foo": 10})),
        metric("n", cpu=0, memory=0, nodeUsage=used(0, 0, **{"example.com/foo": 9})),
    )
    args = {"dominantResourceWeight": 1, "supportedResources": ["example.com/foo"]}

    assert scores(state, pod("new", owner=None), **args) == {"n": 10}


def test_nodes_without_fresh_report_score_zero(world: World) -> None:
    """The score is 0 whether or not the filter rejects expired reports."""
    state = world(
        node("none"),
        node("old"),
        metric("old", at="22:00:00"),
        node("empty"),
        metric("empty", nodeUsage={}),
        node("fresh"),
        metric("fresh"),
    )
    state.advance(START_S)

    result = scores(state, pod("new"), filterExpiredNodeMetrics=False)
    assert {name for name, score in result.items() if score} == {"fresh", "empty"}


def test_prod_pods_may_be_scored_by_what_prod_pods_use(world: World) -> None:
    """Other pods are always scored by the total usage."""
    state = world(node("n", cpu=10, memory="100Gi"), metric("n", cpu=9, memory="90Gi"))

    assert scores(state, pod("p", labels=PROD), scoreAccordingProdUsage=True) == {"n": 98}
    assert scores(state, pod("p"), scoreAccordingProdUsage=True) == {"n": 8}


# -- pods that no measurement shows ------------------------------------------------------------


def test_new_pod_counts_with_its_estimate(world: World) -> None:
    """The estimate counts until a sufficiently recent report covers the pod."""
    state = world(node("n", cpu=10), metric("n", cpu=1), pod("p", cpu=6, on="n"))
    plugin, pending = built(PLUGIN, state), pod("new", cpu=1)
    assert refused(plugin, state, pending) == {"n": CPU}

    state.displace("default/p")
    assert refused(plugin, state, pending) == {}

    state.advance(START_S)
    add(state, pod("p", cpu=6, on="n"), metric("n", cpu=2, pods={"p": used("1")}, at="22:14:00"))
    assert refused(plugin, state, pending) == {"n": CPU}  # 40 s after it came

    add(state, metric("n", cpu=2, pods={"p": used("1")}, at="22:14:20"))
    assert refused(plugin, state, pending) == {}


def test_bind_time_counts_once_known(world: World) -> None:
    """A restarted scheduler reads the start time of a pod from its condition."""
    running = _since(pod("p", cpu=6, on="n"), PodScheduled=-600)
    state = world(node("n", cpu=10))
    state.advance(START_S)
    add(state, pod("p", cpu=6, on="n"), metric("n", cpu=2, pods={"p": used("1")}))
    plugin, pending = built(PLUGIN, state), pod("new", cpu=1)
    assert refused(plugin, state, pending) == {"n": CPU}

    position = state.usage_log.position
    add(state, running)
    assert refused(plugin, state, pending) == {}
    assert state.usage_log.since(position) is not None
    assert state.usage_log.position > position


@pytest.mark.parametrize(
    ("args", "annotations", "verdict"),
    [
        ({}, {}, {}),
        ({"estimatedSecondsAfterPodScheduled": 500}, {}, {}),
        ({"estimatedSecondsAfterPodScheduled": 700}, {}, {"n": CPU}),
        ({"estimatedSecondsAfterPodScheduled": 700, "estimatedSecondsAfterInitialized": 5}, {}, {}),
        ({"estimatedSecondsAfterInitialized": 200}, {}, {"n": CPU}),
        ({}, {"seconds-after-pod-scheduled": "700"}, {}),
        ({"allowCustomizeEstimation": True}, {"seconds-after-pod-scheduled": "700"}, {"n": CPU}),
        (
            {"allowCustomizeEstimation": True, "estimatedSecondsAfterPodScheduled": 700},
            {"seconds-after-pod-scheduled": "0"},
            {},
        ),
        ({"allowCustomizeEstimation": True}, {"seconds-after-pod-scheduled": "soon"}, {}),
    ],
)
def test_estimate_counts_for_a_minimum_time(
    world: World, args: dict[str, Any], annotations: dict[str, str], verdict: dict[str, str]
) -> None:
    """The time runs since scheduling, or initialization; the pod may override it if allowed."""
    own = {f"scheduling.koordinator.sh/load-estimated-{k}": v for k, v in annotations.items()}
    placed = pod("p", cpu=6, on="n", annotations=own)
    running = _since(placed, PodScheduled=-600, Initialized=-100)
    state = world(node("n", cpu=10), running, metric("n", cpu=2, pods={"p": used("1")}))

    assert why(state, pod("new", cpu=1), **args) == verdict


def test_run_with_previously_measured_pod_names(embedded: NewEmbedded) -> None:
    """Decisions in runs and one by one are equal."""
    config = configuration(plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}})
    result = []
    for merge in (True, False):
        one = embedded(
            node("a", cpu=16),
            node("b", cpu=16),
            metric("a", cpu=4, pods={f"p{i}": used("2") for i in range(4)}),
            metric("b", cpu=1),
            *(pod(f"p{i}", cpu=1) for i in range(6)),
            config=config,
            merge_runs=merge,
        )
        one.scheduler.step()
        result.append({p.key: p.spec.node_name for p in one.cluster.list(Pod).items})

    assert result[0] == result[1]
    assert set(result[0].values()) == {"a", "b"}


def test_run_counts_each_pod_by_its_measurement(world: World) -> None:
    """Updates of many pods at once count each pod's measurement, too."""
    state = world(node("n", cpu=16), metric("n", cpu=4, pods={"p0": used("2")}))
    state.advance(START_S)
    plugin = built(PLUGIN, state)
    assert refused(plugin, state, pod("new")) == {}
    pods = [pod(f"p{i}", cpu=3) for i in range(3)]

    rows = np.zeros(3, np.int64)
    classes = [state.classes.of(p) for p in pods]
    state.place_all([(p.key, p) for p in pods], classes, rows)  # 4 + 0.55 + 2 x 2.55

    assert refused(plugin, state, pod("new", cpu="800m")) == {}
    assert refused(plugin, state, pod("new", cpu="1100m")) == {"n": CPU}


# -- the rest --------------------------------------------------------------------------------


def test_pod_is_requeued_when_the_node_cools_down(
    embedded: NewEmbedded,
) -> None:
    """The message has the reason; only a changed report requeues the pod."""
    config = configuration(plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}})
    one = embedded(node("n", cpu=10), metric("n", cpu=9), pod("p", cpu=1), config=config)
    (outcome,) = one.scheduler.step()
    assert isinstance(outcome, Unschedulable)
    assert outcome.plugin == "LoadAwareScheduling"
    assert f"0/1 nodes are available: 1 {CPU}" in outcome.message

    one.clock.advance_to(START_S + 30)
    stored = one.cluster.get(NodeMetric, "n")
    cooled = metric("n", cpu=1, at="22:13:50")
    one.cluster.update_status(NodeMetric(metadata=stored.metadata, status=cooled.status))
    one.scheduler.step()

    assert one.cluster.get(Pod, "p", "default").spec.node_name == "n"


def test_unchanged_report_requeues_no_pod() -> None:
    """A changed report requeues: the newer the report, the fewer pods count with estimates."""
    (hint,) = (e.hint for e in PLUGIN.events if e.resource == "NodeMetric")
    assert hint is not None
    old = metric("n", cpu=1)

    def hint_for(new: NodeMetric | None) -> QueueingHint:
        return hint(pod("p"), ClusterEvent("NodeMetric", Action.UPDATE, old, new))

    assert hint_for(metric("n", cpu=1)) is QueueingHint.SKIP
    assert hint_for(metric("n", cpu=1, at="22:14:00")) is QueueingHint.QUEUE
    assert hint_for(metric("n", cpu=2)) is QueueingHint.QUEUE
    assert hint_for(None) is QueueingHint.QUEUE


def test_too_many_resources_are_refused() -> None:
    """The reasons of a verdict must fit into its code."""
    with pytest.raises(InputError, match=r"supportedResources: must have at most .*, got 42"):
        built(PLUGIN, ClusterState(), supportedResources=[f"example.com/r{i}" for i in range(40)])


def _since(running: Pod, **seconds: int) -> Pod:
    """Return the pod with conditions that have been true for so many seconds."""
    conditions = tuple(
        Condition(type=kind, status="True", last_transition_time=to_datetime(START_S + since_s))
        for kind, since_s in seconds.items()
    )
    status = msgspec.structs.replace(running.status, conditions=conditions)
    return msgspec.structs.replace(running, status=status)
