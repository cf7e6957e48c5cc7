"""Cached failures of gangs never prevent a possible start."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.keywords import as_keywords
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import put, team
from tests.unit.scheduler.test_gang_topology import gather, topology
from tests.unit.scheduler.test_gangs import config as gangs_only
from tests.unit.scheduler.test_gangs import group, member, members, placed
from tests.worlds import configuration, device, embedded, node, pod

from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.device import Device
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.scheduler.loop import Bound, Evicted
from koordinator.simulator import Embedded

KINDS = (Node, Device, ClusterNetworkTopology, ElasticQuota, PodGroup, Pod)
QUOTA = {PREFIX + "name": "team"}
GPU = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
BACKOFF_S = 12.0  # by then every requeued pod has been tried

jobs = st.tuples(
    st.just("job"),
    st.integers(1, 4),  # members
    st.integers(0, 2),  # how many of them it can spare
    st.integers(1, 3),  # CPUs of each
    st.sampled_from([0, 10, 20]),  # priority
    st.sampled_from(["", "", "quota", "rack", "gpu", "mixed", "mixed rack", "mixed priorities"]),
)
one_event = st.one_of(
    jobs,
    jobs,
    st.tuples(st.just("pod"), st.integers(1, 3), st.sampled_from([0, 10, 20])),
    st.tuples(st.just("node"), st.integers(1, 6)),
    st.tuples(st.just("more"), st.integers(0, 50), st.integers(1, 3)),
    st.tuples(st.just("quota"), st.integers(0, 8)),
    st.tuples(st.just("delete"), st.integers(0, 50)),
    st.tuples(st.just("delete"), st.integers(0, 50)),
    st.tuples(st.just("lose"), st.integers(0, 50)),
    st.tuples(st.just("shrink"), st.integers(0, 50)),
)
events = st.lists(one_event, min_size=4, max_size=16)
changes = st.one_of(
    one_event,
    st.tuples(st.just("label"), st.integers(0, 50), st.integers(0, 2)),
    st.tuples(st.just("label"), st.integers(0, 50), st.integers(0, 2)),
    st.tuples(st.just("move"), st.integers(0, 50), st.integers(0, 50)),
    st.tuples(st.just("cordon"), st.integers(0, 50), st.booleans()),
)
batches = st.lists(st.lists(changes, min_size=1, max_size=5), min_size=2, max_size=7)


#: What a quota is full of could go, and in the end there is a node for what comes then.
FULL_QUOTA = [
    ("pod", 1, 0),
    ("pod", 1, 0),
    ("node", 1),
    ("node", 1),
    ("job", 3, 0, 1, 0, "quota"),
    ("pod", 1, 0),
    ("job", 1, 0, 2, 10, "quota"),
    ("node", 2),
]


#: Room for a gang is freed, and then a label of one of its members changes.
LABEL_LAST = [
    [("pod", 3, 0), ("pod", 1, 0)],
    [("job", 2, 0, 1, 0, "")],
    [("delete", 2), ("label", 1, 2)],
]
#: The only node is lost, and then there is one again.
FIRST_NODE = [[("pod", 1, 0), ("lose", 0)], [("node", 1)]]


def machine(name: str, cpu: int) -> KubeObject:
    number = sum(map(ord, name))
    labels = {"hall": f"p{number % 2}", "rack": f"r{number % 4}"}
    return node(name, cpu, labels=labels, **as_keywords(dict.fromkeys(GPU, 200)))


def happen(one: Embedded, number: int, event: Sequence[Any]) -> None:
    """Change the cluster."""
    match event:
        case "job", count, spare, cpu, priority, kind:
            name = f"g{number}"
            network = gather(must="RackLayer") if "rack" in kind else {}
            labels = QUOTA if kind == "quota" else {}
            requests = dict.fromkeys(GPU, 100) if kind == "gpu" else {}
            one.load([group(name, max(count - spare, 1), **network)])
            pods = members(name, count, cpu, priority=priority, labels=labels, requests=requests)
            if "mixed" in kind:
                priority += 10 * ("priorities" in kind)
                others = members(name, count, 4 - cpu, priority=priority)
                pods[1::2] = others[1::2]
            one.load(pods)  # in the order in which a restarted scheduler sees them: it matters
        case "pod", cpu, priority:
            one.load([pod(f"p{number}", cpu, priority=priority)])
        case "node", cpu:
            one.load([machine(f"n{number}", cpu), device(f"n{number}", gpus=2)])
        case "quota", most:
            put(one, team("team", most=most))
        case what, index, *more:
            happen_to_one(one, number, what, index, *more)


def happen_to_one(one: Embedded, number: int, what: str, index: int, *more: int) -> None:
    """Change one of the existing pods, empty nodes or gangs."""
    used = {stored.spec.node_name for stored in one.cluster.list(Pod).items}
    kinds: dict[str, type[KubeObject]] = {
        **dict.fromkeys(("delete", "label", "move"), Pod),
        **dict.fromkeys(("lose", "cordon"), Node),
    }
    kind = kinds.get(what, PodGroup)
    there = [o.metadata for o in one.cluster.list(kind).items]
    if what == "lose":
        there = [meta for meta in there if meta.name not in used]
    if not there:
        return
    meta = there[index % len(there)]
    match what:
        case "more":
            one.load([member(f"m{number}", meta.name, *more)])
        case "delete" | "lose":
            one.cluster.delete(kind, meta.name, meta.namespace, grace_period_s=0)
        case "shrink":
            one.cluster.patch(kind, meta.name, meta.namespace, {"spec": {"minMember": 1}})
        case "label":
            label = {"metadata": {"labels": {"revision": str(more[0])}}}
            one.cluster.patch(kind, meta.name, meta.namespace, label)
        case "move":
            groups = [group.metadata.name for group in one.cluster.list(PodGroup).items]
            if groups and meta.name not in placed(one):
                label = {"metadata": {"labels": {POD_GROUP: groups[more[0] % len(groups)]}}}
                one.cluster.patch(kind, meta.name, meta.namespace, label)
        case "cordon":
            one.cluster.patch(kind, meta.name, "", {"spec": {"unschedulable": bool(more[0])}})


def come_to_rest(one: Embedded) -> None:
    """Run until no requeued pod starts any more."""
    idle = 0
    while idle < 2:
        outcomes = one.scheduler.step()
        moved = any(isinstance(outcome, Bound | Evicted) for outcome in outcomes)
        idle = 0 if moved else idle + 1
        one.clock.advance_to(one.clock.now_s() + (0.0 if moved else BACKOFF_S))


def started_without_caches(one: Embedded, config: KubeSchedulerConfiguration) -> list[str]:
    """Return what a scheduler without caches would start."""
    everything = [obj for kind in KINDS for obj in one.cluster.list(kind).items]
    outcomes = embedded(*everything, config=config).scheduler.step()
    return [outcome.pod for outcome in outcomes if isinstance(outcome, Bound | Evicted)]


def _config(*more: str, jobs: bool, network: bool) -> KubeSchedulerConfiguration:
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    args = {"enablePreemption": jobs, "awareNetworkTopology": network}
    return configuration(
        plugins={
            "multiPoint": {"enabled": [{"name": name} for name in (*more, "Coscheduling")]},
            "queueSort": only,
            **({"postFilter": only} if jobs else {}),
        },
        pluginConfig=[{"name": "Coscheduling", "args": args}],
    )


CONFIGS = {
    "nobody preempts": gangs_only(),
    "pods preempt": _config(jobs=False, network=False),
    "jobs preempt": _config("ElasticQuota", jobs=True, network=False),
    "devices": _config("ElasticQuota", "DeviceShare", jobs=False, network=False),
    "network": _config("ElasticQuota", jobs=True, network=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CONFIGS))
@settings(max_examples=examples(15))
@given(events=events)
@example(events=FULL_QUOTA)
def test_every_gang_that_can_start_has_started(name: str, events: list[Sequence[Any]]) -> None:
    """After any changes, a scheduler without caches finds nothing to start or to evict."""
    config = CONFIGS[name]
    one = embedded(topology(), machine("first", 4), team("team", most=4), config=config)
    for number, event in enumerate(events):
        happen(one, number, event)
        come_to_rest(one)
        one.scheduler.validate()
        assert started_without_caches(one, config) == [], (number, event)


def decide(one: Embedded) -> None:
    """Run the scheduler without advancing the clock."""
    idle = 0
    while idle < 2:
        outcomes = one.scheduler.step()
        idle = 0 if any(isinstance(one, Bound | Evicted) for one in outcomes) else idle + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CONFIGS))
@settings(max_examples=examples(10), deadline=None)
@given(batches=batches)
@example(batches=LABEL_LAST)
@example(batches=FIRST_NODE)
def test_events_of_one_step_are_decided_in_any_order(
    name: str, batches: list[list[Sequence[Any]]]
) -> None:
    """The decision depends on what the events freed together."""
    config = CONFIGS[name]
    one = embedded(topology(), machine("first", 4), team("team", most=4), config=config)
    decide(one)
    for number, batch in enumerate(batches):
        for place, event in enumerate(batch):
            happen(one, 10 * number + place, event)
        decide(one)
        one.scheduler.validate()
        assert started_without_caches(one, config) == [], (number, batch)


def attempts(one: Embedded, gang: str) -> int:
    """Return how often a member of the gang was popped."""
    queued_members = (one.scheduler.queue.get(f"default/{gang}-{i}") for i in range(3))
    return max(queued.attempts for queued in queued_members if queued is not None)


@pytest.mark.parametrize("jobs", [False, True])
def test_unhelpful_change_causes_no_attempt(jobs: bool) -> None:
    """A deleted pod that leaves too little free costs a waiting gang no attempt."""
    one = embedded(
        *(node(f"n{i}", 4) for i in range(3)),
        *(pod(f"p{i}", 4, on=f"n{i}") for i in range(3)),
        group("g", 3),
        *members("g", 3, 3),
        config=_config(jobs=jobs, network=False),
    )
    come_to_rest(one)
    tried = attempts(one, "g")

    for name in ("p0", "p1"):
        one.cluster.delete(Pod, name, "default", grace_period_s=0)
        come_to_rest(one)
    assert attempts(one, "g") == tried

    one.cluster.delete(Pod, "p2", "default", grace_period_s=0)
    come_to_rest(one)
    assert len(placed(one)) == 3


def full_racks(priority: int = 0) -> list[KubeObject]:
    """Return two racks of two nodes, each node full with one pod."""
    return [
        obj
        for i, rack in enumerate(("r0", "r0", "r1", "r1"))
        for obj in (
            node(f"n{i}", 4, labels={"hall": "p0", "rack": rack}),
            pod(f"p{i}", 4, on=f"n{i}", priority=priority),
        )
    ]


@pytest.mark.parametrize("jobs", [False, True])
def test_unhelpful_change_causes_no_attempt_of_a_gathered_gang(jobs: bool) -> None:
    """Slots in different racks add up to enough, but the gang must be in one."""
    one = embedded(
        topology(),
        *full_racks(),
        group("g", 2, **gather(must="RackLayer")),
        *members("g", 2, 4),
        config=_config(jobs=jobs, network=True),
    )
    come_to_rest(one)
    tried = attempts(one, "g")

    for name in ("p0", "p2"):
        one.cluster.delete(Pod, name, "default", grace_period_s=0)
        come_to_rest(one)
    assert attempts(one, "g") == tried

    one.cluster.delete(Pod, "p3", "default", grace_period_s=0)
    come_to_rest(one)
    assert set(placed(one).values()) >= {"n2", "n3"}


def test_too_few_victims_cause_no_attempt_of_a_gathered_gang() -> None:
    """In each rack one pod is less important, and one is not."""
    one = embedded(
        topology(),
        *full_racks(priority=100),
        group("g", 2, **gather(must="RackLayer")),
        *members("g", 2, 4, priority=100),
        config=_config(jobs=True, network=True),
    )
    for name in ("p0", "p2"):
        one.cluster.delete(Pod, name, "default", grace_period_s=0)
        one.load([pod(f"low-{name}", 4, on=f"n{name[1]}")])
    one.load([node("small", 1), pod("p4", 1, on="small")])
    come_to_rest(one)
    tried = attempts(one, "g")

    one.cluster.delete(Pod, "p4", "default", grace_period_s=0)
    come_to_rest(one)
    assert attempts(one, "g") == tried

    one.cluster.delete(Pod, "p3", "default", grace_period_s=0)
    come_to_rest(one)
    come_to_rest(one)
    assert {name for name in placed(one) if name.startswith("g-")} == {"g-0", "g-1"}


@pytest.mark.parametrize("jobs", [False, True])
def test_unhelpful_change_causes_no_attempt_of_a_mixed_gang(jobs: bool) -> None:
    """Too little capacity for one kind, or for all together, causes no attempt."""
    one = embedded(
        *(node(f"n{i}", 4) for i in range(3)),
        *(pod(f"p{i}", 4, on=f"n{i}") for i in range(3)),
        group("g", 3),
        *members("g", 2, 4),
        member("g-2", "g", 3),
        config=_config(jobs=jobs, network=False),
    )
    come_to_rest(one)
    tried = attempts(one, "g")

    for name in ("p0", "p1"):
        one.cluster.delete(Pod, name, "default", grace_period_s=0)
        come_to_rest(one)
    assert attempts(one, "g") == tried

    one.cluster.delete(Pod, "p2", "default", grace_period_s=0)
    come_to_rest(one)
    assert len(placed(one)) == 3


@pytest.mark.parametrize("jobs", [False, True])
def test_possible_preemption_causes_an_attempt(jobs: bool) -> None:
    """The free capacity is too small, but less important pods would free enough."""
    one = embedded(
        node("a", 4),
        pod("low", 2, on="a", priority=0),
        pod("high", 2, on="a", priority=100),
        group("g", 1),
        member("g-0", "g", 3, priority=10),
        config=_config(jobs=jobs, network=False),
    )
    come_to_rest(one)
    assert set(placed(one)) == {"low", "high"}

    one.cluster.delete(Pod, "high", "default", grace_period_s=0)
    come_to_rest(one)
    come_to_rest(one)

    assert set(placed(one)) == {"g-0"}


def test_lower_minimum_causes_an_attempt() -> None:
    """A smaller minMember counts immediately."""
    one = embedded(node("a", 2), group("g", 3), *members("g", 3), config=gangs_only())
    come_to_rest(one)
    assert placed(one) == {}

    one.cluster.patch(PodGroup, "g", "default", {"spec": {"minMember": 2}})
    come_to_rest(one)

    assert len(placed(one)) == 2


def test_new_member_causes_an_attempt() -> None:
    """The new member may fit although nothing was freed."""
    large = member("g-0", "g", 3)
    one = embedded(node("a", 2), group("g", 1), large, config=gangs_only())
    come_to_rest(one)
    assert placed(one) == {}

    one.load([member("g-1", "g", 1)])
    come_to_rest(one)

    assert set(placed(one)) == {"g-1"}
