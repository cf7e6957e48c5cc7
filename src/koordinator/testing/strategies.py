"""Random small clusters and pods that exercise the scheduling rules, for property tests.

In the spirit of the scenarios that decisions of kube-scheduler were recorded on: few values of
everything, so that things meet.
"""

from typing import Any

from hypothesis import strategies as st

from koordinator.api.device import Device
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.testing.worlds import (
    HOSTNAME,
    ZONE,
    device,
    near,
    node,
    placed_on,
    pod,
    renamed,
    spread,
)

FOO = "example.com/foo"
GPU = "koordinator.sh/gpu-memory-ratio"
GPU_REQUESTS = ({GPU: 50}, {GPU: 30}, {GPU: 100}, {GPU: 200}, {"koordinator.sh/gpu-memory": "4Gi"})
CPUS: tuple[str | int, ...] = (4, "1900m", "3920m", 16)
GPUS = {GPU: 400, "koordinator.sh/gpu-memory": "64Gi"}  # of the kubelet: the most a Device reports
GPU_MODEL = "node.koordinator.sh/gpu-model"
APPS = ("app0", "app1", "app2")
TAINTS = ("dedicated=a:NoSchedule", "dedicated=b:NoExecute", "spot=1:PreferNoSchedule")
IMAGES = {"web:1": 300, "db:1": 900, "ml:1": 4000}

apps = st.sampled_from(APPS)
keys = st.sampled_from((ZONE, HOSTNAME))


def sometimes(wanted: st.SearchStrategy[Any], otherwise: Any = None) -> st.SearchStrategy[Any]:
    """Return a strategy for one in four; few wishes per pod leave some of them a place."""
    return st.one_of(*[st.just(otherwise)] * 3, wanted)


# Strategies are created once: creating them for each draw costs more than the tested code.
_EXTENDED: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    (GPUS, GPUS | {FOO: 2}, {FOO: 2}, {})
)
_CPUS = st.sampled_from(CPUS)
_NODE_MEMORY = st.sampled_from(("8Gi", "3583Mi", "64Gi"))
_MOST_PODS = st.sampled_from((110, 3, 6))
_ZONES = st.sampled_from(("a", "b", "c", ""))
_DISKS = st.sampled_from(("", "ssd", "hdd"))
_GENERATIONS = st.sampled_from(("", "2", "5"))
_MODELS = st.sampled_from(("", "A100", "T4"))
_TAINTS = sometimes(st.lists(st.sampled_from(TAINTS), min_size=1, unique=True), ())
_IMAGES = st.sets(st.sampled_from(sorted(IMAGES)))
_CORDONED = st.sampled_from((*[False] * 9, True))
_FLAGS = st.booleans()
_HOW_MANY_GPUS = st.integers(0, 4)
_UNHEALTHY = st.sets(st.integers(0, 3), max_size=1)
_GPU_MEMORY = st.sampled_from(("16Gi", "40Gi"))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """Draw nodes small enough to fill up, in one of three zones or none."""
    extended: dict[str, Any] = draw(_EXTENDED)
    return node(
        name,
        cpu=draw(_CPUS),
        memory=draw(_NODE_MEMORY),
        pods=draw(_MOST_PODS),
        zone=draw(_ZONES),
        labels={
            key: value
            for key, value in (
                ("disk", draw(_DISKS)),
                ("gen", draw(_GENERATIONS)),
                (GPU_MODEL, draw(_MODELS)),
            )
            if value
        },
        taints=draw(_TAINTS),
        images={image: IMAGES[image] for image in draw(_IMAGES)},
        unschedulable=draw(_CORDONED),
        **extended,
    )


@st.composite
def devices(draw: st.DrawFn, name: str) -> Device:
    """Draw up to four GPUs, some of them unhealthy."""
    gpus, unhealthy = draw(_HOW_MANY_GPUS), draw(_UNHEALTHY)
    return device(name, gpus=gpus, memory=draw(_GPU_MEMORY), unhealthy=sorted(unhealthy))


_TOLERATIONS = st.lists(
    st.sampled_from(
        (
            {"key": "dedicated", "operator": "Exists"},
            {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists"},
            {"operator": "Exists"},
        )
    ),
    max_size=2,
)
_EXPRESSIONS = st.sampled_from(
    (
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "disk", "operator": "Exists"},
        {"key": ZONE, "operator": "NotIn", "values": ["a"]},
        {"key": "gen", "operator": "Gt", "values": ["3"]},
        {"key": GPU_MODEL, "operator": "In", "values": ["A100"]},
    )
)
_NODE_TERMS = st.builds(
    lambda expressions: {"matchExpressions": expressions},
    st.lists(_EXPRESSIONS, min_size=1, max_size=2),
)
_PREFERRED_NODES = st.lists(
    st.builds(
        lambda weight, term: {"weight": weight, "preference": term},
        st.integers(1, 100),
        _NODE_TERMS,
    ),
    max_size=2,
)
_REQUIRED_NODES = st.lists(_NODE_TERMS, max_size=2)


@st.composite
def node_affinities(draw: st.DrawFn) -> JsonObject:
    required = draw(_REQUIRED_NODES)
    out: JsonObject = {"preferredDuringSchedulingIgnoredDuringExecution": draw(_PREFERRED_NODES)}
    if required:
        out["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    return out


_WEIGHTS = st.sampled_from((0, 1, 50))


@st.composite
def pod_affinities(draw: st.DrawFn) -> JsonObject:
    return near(draw(apps), draw(keys), weight=draw(_WEIGHTS))


_SPREAD_POLICIES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    (
        {},
        {"nodeTaintsPolicy": "Honor"},
        {"nodeAffinityPolicy": "Ignore"},
        {"matchLabelKeys": ["tier"]},
    )
)
_SKEWS = st.integers(1, 2)


@st.composite
def spreads(draw: st.DrawFn, app: str) -> JsonObject:
    more: dict[str, Any] = draw(_SPREAD_POLICIES)
    soft = draw(_FLAGS)
    if not soft and draw(_FLAGS):
        more = {**more, "minDomains": 3}
    return spread(draw(keys), draw(_SKEWS), soft=soft, app=app, **more)


_FOO_REQUESTS = sometimes(st.just({FOO: 1}), {})
_GPU_REQUESTS = sometimes(st.sampled_from(GPU_REQUESTS), {})
_CPU_REQUESTS = st.sampled_from(("500m", None, "100m", 1, "1700m"))
_MEMORY_REQUESTS = st.sampled_from(("500Mi", None, "64Mi", "2Gi"))
_TIERS = st.sampled_from(("front", "back"))
_POD_IMAGES = st.lists(st.sampled_from((*IMAGES, "other:1")), min_size=1, max_size=2)


@st.composite
def pods(draw: st.DrawFn, name: str = "p", *, plain: bool = False, gpus: bool = True) -> Pod:
    """Return a pending pod; a plain one has requests, labels and images only."""
    kind = draw(apps)
    amounts: JsonObject = {
        "requests": {**draw(_FOO_REQUESTS), **(draw(_GPU_REQUESTS) if gpus else {})},
        "cpu": draw(_CPU_REQUESTS),
        "memory": draw(_MEMORY_REQUESTS),
        "labels": {"app": kind, "tier": draw(_TIERS)},
        "images": draw(_POD_IMAGES),
    }
    return pod(name, **amounts, **({} if plain else draw(_WISHES[kind])))


_NODE_AFFINITY = sometimes(node_affinities())
_POD_AFFINITY = sometimes(pod_affinities())
_PRIORITIES = st.sampled_from((0, 10, 100))
_PORTS = sometimes(st.sampled_from(([8080], ["10.0.0.1:8080"], ["8080/UDP"])), ())
_SELECTORS = sometimes(st.sampled_from(({"disk": "ssd"}, {"disk": "hdd"})), {})
_SOME_TOLERATIONS = sometimes(_TOLERATIONS, ())
_SPREADS = {app: sometimes(st.lists(spreads(app), max_size=2), ()) for app in APPS}


@st.composite
def placement_constraints(draw: st.DrawFn, app: str) -> JsonObject:
    """Return placement constraints of a pod: selectors, affinities and tolerations."""
    affinity = {
        "nodeAffinity": draw(_NODE_AFFINITY),
        "podAffinity": draw(_POD_AFFINITY),
        "podAntiAffinity": draw(_POD_AFFINITY),
    }
    wanted: JsonObject = {
        "priority": draw(_PRIORITIES),
        "ports": draw(_PORTS),
        "nodeSelector": draw(_SELECTORS),
        "tolerations": draw(_SOME_TOLERATIONS),
        "topologySpreadConstraints": draw(_SPREADS[app]),
        "affinity": {key: value for key, value in affinity.items() if value},
    }
    return {key: value for key, value in wanted.items() if value}


_WISHES = {app: placement_constraints(app) for app in APPS}
_TWO_KINDS = st.lists(pods(gpus=False), min_size=2, max_size=2)
_RUNNING = st.integers(0, 6)


@st.composite
def clusters(
    draw: st.DrawFn, most: int = 6, *, least: int = 1, with_pods: bool = True, gpus: bool = True
) -> list[KubeObject]:
    """Return nodes, device reports of some of them, and pods that run on them."""
    names = [f"n{index}" for index in range(draw(st.integers(least, most)))]
    objects: list[KubeObject] = [draw(nodes(name)) for name in names]
    if gpus:
        objects += [draw(devices(name)) for name in names if draw(_FLAGS)]
    if with_pods:
        kinds, places = st.sampled_from(draw(_TWO_KINDS)), st.sampled_from(names)
        for index in range(draw(_RUNNING)):
            objects.append(renamed(placed_on(draw(kinds), draw(places)), f"b{index}"))
    return objects
