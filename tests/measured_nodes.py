"""Random small clusters whose nodes report their usage, and pods that care, for property tests."""

import json

from hypothesis import strategies as st
from tests.worlds import metric, node, placed_on, pod, renamed, used

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod

BAND = "koordinator.sh/priority-class"
PREFIX = "scheduling.koordinator.sh"
TIMES = ("22:13:00", "22:12:00", "22:10:30", "22:00:00", "")
NOT_THERE = ("gone", "q0-0", "q0-2", "q1-0", "new0-0-0", "new1-0-1")  # may be added later
WINDOWS = (("5m", "p95"), ("15m", "p95"), ("5m", "avg"))

#: Arguments of the plugin under which every rule has something to say, one set after the other.
ARGUMENTS: tuple[JsonObject, ...] = (
    {},
    {
        "filterExpiredNodeMetrics": False,
        "prodUsageThresholds": {"cpu": 40},
        "scoreAccordingProdUsage": True,
        "prodUsageIncludeSys": True,
        "dominantResourceWeight": 3,
        "estimatedSecondsAfterPodScheduled": 90,
    },
    {
        "enableScheduleWhenNodeMetricsExpired": True,
        "aggregated": {
            "usageThresholds": {"cpu": 50, "memory": 60},
            "usageAggregationType": "p95",
            "usageAggregatedDuration": "5m",
            "scoreAggregationType": "avg",
        },
        "allowCustomizeEstimation": True,
        "estimatedSecondsAfterInitialized": 60,
        "supportedResources": ["example.com/foo"],
    },
)

_amounts = st.builds(
    used,
    st.sampled_from(("0", "500m", "1900m", "3", "7")),
    st.sampled_from(("0", "1Gi", "5Gi", "11Gi")),
)


@st.composite
def reports(draw: st.DrawFn, name: str, pods: list[str]) -> NodeMetric:
    """Return the report of a node, windows and pods, some of them not there."""
    usage = draw(_amounts)["resources"]
    named = draw(st.lists(st.sampled_from((*pods, *NOT_THERE)), unique=True, max_size=4))
    kept: JsonObject = {} if draw(st.integers(0, 7)) else {"nodeUsage": {}}
    return metric(
        name,
        usage["cpu"],
        usage["memory"],
        at=draw(st.sampled_from(TIMES)),
        pods={one: draw(_amounts) for one in named},
        prod=[one for one in named if draw(st.booleans())],
        system=draw(_amounts),
        windows={one: draw(_amounts) for one in draw(st.sets(st.sampled_from(WINDOWS)))},
        interval_s=draw(st.sampled_from((None, 30))),
        **kept,
    )


@st.composite
def measured_pods(draw: st.DrawFn, name: str = "p") -> Pod:
    """Return a pending pod of any band, perhaps of a DaemonSet, perhaps with its own estimates."""
    band = draw(st.sampled_from(("", "koord-prod", "koord-batch", "koord-free")))
    extended = {"kubernetes.io/batch-cpu": 1500} if band == "koord-batch" else {}
    annotations = {
        f"{PREFIX}/load-estimated-scaling-factors": json.dumps({"cpu": 50}),
        f"{PREFIX}/load-estimated-seconds-after-pod-scheduled": "600",
    }
    limits = draw(st.sampled_from(({}, {"cpu": "2", "memory": "4Gi"})))
    made = pod(
        name,
        draw(st.sampled_from((None, "1", "2500m"))),
        draw(st.sampled_from((None, "1Gi", "6Gi"))),
        requests=extended,
        labels={BAND: band} if band else {},
        annotations=draw(st.sampled_from(({}, annotations))),
        owner=draw(st.sampled_from((None, None, ("DaemonSet", "d")))),
    )
    return _limited(made, limits)


@st.composite
def measured_nodes(draw: st.DrawFn, name: str) -> Node:
    """Return a node, perhaps with limits of its own, perhaps amplified."""
    aggregated = {
        "usageThresholds": {"cpu": 30},
        "usageAggregationType": "p95",
        "usageAggregatedDuration": "15m",
    }
    own = draw(
        st.sampled_from(
            (
                None,
                None,
                {"usageThresholds": {"cpu": 90}},
                {"prodUsageThresholds": {"memory": 50}},
                {"aggregatedUsage": aggregated},
            )
        )
    )
    annotations = {} if own is None else {f"{PREFIX}/usage-thresholds": json.dumps(own)}
    if draw(st.integers(0, 3)) == 0:
        annotations["node.koordinator.sh/raw-allocatable"] = json.dumps({"cpu": "4"})
    batch: JsonObject = {"kubernetes.io/batch-cpu": 20_000}  # so that pods of the band fit
    return node(name, cpu=8, memory="16Gi", annotations=annotations, **batch)


@st.composite
def measured_clusters(draw: st.DrawFn, *, least: int = 1) -> list[KubeObject]:
    """Return nodes, pods on them, and reports of most nodes."""
    objects: list[KubeObject] = []
    for number in range(draw(st.integers(least, 4))):
        name = f"n{number}"
        names = [f"{name}-p{index}" for index in range(draw(st.integers(0, 3)))]
        objects.append(draw(measured_nodes(name)))
        objects += [placed_on(draw(measured_pods(one)), name) for one in names]
        if draw(st.integers(0, 4)):
            objects.append(draw(reports(name, names)))
    return objects


def copies(one: Pod, count: int) -> list[Pod]:
    """Return pods that differ in their names only."""
    return [renamed(one, f"{one.metadata.name}-{index}") for index in range(count)]


def _limited(made: Pod, limits: JsonObject) -> Pod:
    if not limits:
        return made
    manifest = to_manifest(made)
    manifest["spec"]["containers"][0]["resources"]["limits"] = limits
    limited = decode_object(manifest)
    assert isinstance(limited, Pod)
    return limited
