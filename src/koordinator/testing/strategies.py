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


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """Small enough to fill up, in one of three zones or none."""
    extended: dict[str, Any] = draw(st.sampled_from((GPUS, GPUS | {FOO: 2}, {FOO: 2}, {})))
    return node(
        name,
        cpu=draw(st.sampled_from(CPUS)),
        memory=draw(st.sampled_from(("8Gi", "3583Mi", "64Gi"))),
        pods=draw(st.sampled_from((110, 3, 6))),
        zone=draw(st.sampled_from(("a", "b", "c", ""))),
        labels={
            key: value
            for key, value in (
                ("disk", draw(st.sampled_from(("", "ssd", "hdd")))),
                ("gen", draw(st.sampled_from(("", "2", "5")))),
                (GPU_MODEL, draw(st.sampled_from(("", "A100", "T4")))),
            )
            if value
        },
        taints=draw(sometimes(st.lists(st.sampled_from(TAINTS), min_size=1, unique=True), [])),
        images={image: IMAGES[image] for image in draw(st.sets(st.sampled_from(sorted(IMAGES))))},
        unschedulable=draw(st.sampled_from((*[False] * 9, True))),
        **extended,
    )


@st.composite
def devices(draw: st.DrawFn, name: str) -> Device:
    """Up to four GPUs, some of them broken."""
    gpus = draw(st.integers(0, 4))
    unhealthy = draw(st.sets(st.integers(0, 3), max_size=1))
    memory = draw(st.sampled_from(("16Gi", "40Gi")))
    return device(name, gpus=gpus, memory=memory, unhealthy=sorted(unhealthy))


@st.composite
def pods(draw: st.DrawFn, name: str = "p", *, plain: bool = False, gpus: bool = True) -> Pod:
    """Return a pending pod; a plain one has requests, labels and images only."""
    kind = draw(apps)
    asked: JsonObject = draw(sometimes(st.just({FOO: 1}), {}))
    if gpus:
        asked |= draw(sometimes(st.sampled_from(GPU_REQUESTS), {}))
    amounts: JsonObject = {
        "cpu": draw(st.sampled_from(("500m", None, "100m", 1, "1700m"))),
        "memory": draw(st.sampled_from(("500Mi", None, "64Mi", "2Gi"))),
        "requests": asked,
        "labels": {"app": kind, "tier": draw(st.sampled_from(("front", "back")))},
        "images": draw(st.lists(st.sampled_from((*IMAGES, "other:1")), min_size=1, max_size=2)),
    }
    return pod(name, **amounts, **({} if plain else draw(wishes(kind))))


@st.composite
def wishes(draw: st.DrawFn, app: str) -> JsonObject:
    """Return the rest of a pod: where it wants to be and what it must not meet."""
    affinity = {
        "nodeAffinity": draw(sometimes(node_affinities())),
        "podAffinity": draw(sometimes(pod_affinities())),
        "podAntiAffinity": draw(sometimes(pod_affinities())),
    }
    wanted: JsonObject = {
        "priority": draw(st.sampled_from((0, 10, 100))),
        "ports": draw(sometimes(st.sampled_from(([8080], ["10.0.0.1:8080"], ["8080/UDP"])), [])),
        "nodeSelector": draw(sometimes(st.sampled_from(({"disk": "ssd"}, {"disk": "hdd"})), {})),
        "tolerations": draw(sometimes(tolerations(), [])),
        "topologySpreadConstraints": draw(sometimes(st.lists(spreads(app), max_size=2), [])),
        "affinity": {key: value for key, value in affinity.items() if value},
    }
    return {key: value for key, value in wanted.items() if value}


@st.composite
def tolerations(draw: st.DrawFn) -> list[JsonObject]:
    toleration = st.sampled_from(
        (
            {"key": "dedicated", "operator": "Exists"},
            {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists"},
            {"operator": "Exists"},
        )
    )
    return draw(st.lists(toleration, max_size=2))


@st.composite
def node_affinities(draw: st.DrawFn) -> JsonObject:
    expression = st.sampled_from(
        (
            {"key": "disk", "operator": "In", "values": ["ssd"]},
            {"key": "disk", "operator": "Exists"},
            {"key": ZONE, "operator": "NotIn", "values": ["a"]},
            {"key": "gen", "operator": "Gt", "values": ["3"]},
            {"key": GPU_MODEL, "operator": "In", "values": ["A100"]},
        )
    )
    term = st.builds(
        lambda e: {"matchExpressions": e}, st.lists(expression, min_size=1, max_size=2)
    )
    preferred = st.builds(lambda w, t: {"weight": w, "preference": t}, st.integers(1, 100), term)
    required = draw(st.lists(term, max_size=2))
    out: JsonObject = {
        "preferredDuringSchedulingIgnoredDuringExecution": draw(st.lists(preferred, max_size=2))
    }
    if required:
        out["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    return out


@st.composite
def pod_affinities(draw: st.DrawFn) -> JsonObject:
    return near(draw(apps), draw(keys), weight=draw(st.sampled_from((0, 1, 50))))


@st.composite
def spreads(draw: st.DrawFn, app: str) -> JsonObject:
    more: dict[str, Any] = draw(
        st.sampled_from(
            (
                {},
                {"nodeTaintsPolicy": "Honor"},
                {"nodeAffinityPolicy": "Ignore"},
                {"matchLabelKeys": ["tier"]},
            )
        )
    )
    soft = draw(st.booleans())
    if not soft and draw(st.booleans()):
        more = {**more, "minDomains": 3}
    return spread(draw(keys), draw(st.integers(1, 2)), soft=soft, app=app, **more)


@st.composite
def clusters(
    draw: st.DrawFn, most: int = 6, *, least: int = 1, with_pods: bool = True, gpus: bool = True
) -> list[KubeObject]:
    """Return nodes, device reports of some of them, and pods that run on them."""
    names = [f"n{index}" for index in range(draw(st.integers(least, most)))]
    objects: list[KubeObject] = [draw(nodes(name)) for name in names]
    if gpus:
        objects += [draw(devices(name)) for name in names if draw(st.booleans())]
    if with_pods:
        kinds = [draw(pods(gpus=False)) for _ in range(2)]
        for index in range(draw(st.integers(0, 6))):
            kind = draw(st.sampled_from(kinds))
            objects.append(renamed(placed_on(kind, draw(st.sampled_from(names))), f"b{index}"))
    return objects
