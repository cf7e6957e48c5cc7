"""No eviction in vain under churn: a job for which pods were evicted starts."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import group, member
from tests.unit.scheduler.test_job_preemption import JOBS, STOCK, config_of
from tests.worlds import budget, device, embedded, node, pod

from koordinator.api.labels import POD_GROUP
from koordinator.api.pod import Pod
from koordinator.scheduler.loop import Bound, Evicted
from koordinator.simulator import Embedded

QUOTA = {PREFIX + "name": "team"}
PRIORITIES = (0, 10, 20, 30)

jobs = st.tuples(
    st.just("job"),
    st.integers(1, 5),  # members
    st.integers(0, 3),  # how many of them it can spare
    st.lists(st.integers(1, 4), min_size=1, max_size=2),  # CPUs of members, in turn
    st.sampled_from(PRIORITIES),
    st.booleans(),  # in the quota
)
pods = st.tuples(st.just("pod"), st.integers(1, 4), st.sampled_from(PRIORITIES), st.booleans())
nodes = st.tuples(st.just("node"), st.integers(2, 8))
deletions = st.tuples(st.just("delete"), st.integers(0, 100))
arrivals = st.lists(st.one_of(jobs, jobs, pods, nodes, deletions), min_size=3, max_size=14)


def happen(one: Embedded, number: int, event: Sequence[Any]) -> None:
    """Change the cluster."""
    match event:
        case "job", count, spare, sizes, priority, in_quota:
            labels = QUOTA if in_quota else {}
            one.load([group(f"g{number}", max(count - spare, 1))])
            one.load(
                member(
                    f"g{number}-{i}",
                    f"g{number}",
                    sizes[i % len(sizes)],
                    priority=priority,
                    labels=dict(labels),
                )
                for i in range(count)
            )
        case "pod", cpu, priority, in_quota:
            labels = {"app": "kept"} | (QUOTA if in_quota else {})
            one.load([pod(f"p{number}", cpu, priority=priority, labels=labels)])
        case "node", cpu:
            one.load([node(f"n{number}", cpu=cpu)])
        case "delete", index:
            there = one.cluster.list(Pod).items
            if there:
                meta = there[index % len(there)].metadata
                one.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)


def job_of(stored: Pod) -> str:
    return stored.metadata.labels.get(POD_GROUP, stored.key)


def check(one: Embedded, *, whole: bool) -> None:
    """Run until nothing changes, and check that each preemptor has started meanwhile.

    With job preemption for single pods too (``whole``), no gang is left incomplete. One exception
    is known: if a pod outside of all quotas is evicted, the quotas may use more, and a more
    important job that waited for that may be first.
    """
    jobs = {stored.key: job_of(stored) for stored in one.cluster.list(Pod).items}
    priorities = {p.key: p.spec.priority or 0 for p in one.cluster.list(Pod).items}
    outcomes = one.run_to_fixed_point()
    started = {jobs[o.pod]: priorities[o.pod] for o in outcomes if isinstance(o, Bound)}
    in_quota = {
        jobs[p.key] for p in one.cluster.list(Pod).items if PREFIX + "name" in p.metadata.labels
    }
    for outcome in outcomes:
        if isinstance(outcome, Evicted):
            assert priorities[outcome.pod] < priorities[outcome.by]
            first = [job for job in in_quota if started.get(job, -1) > priorities[outcome.by]]
            assert jobs[outcome.by] in started or first, outcome
    one.scheduler.validate()
    for active in one.scheduler.cycles["default-scheduler"].profile.gangs:
        for gang in active.plugin.gangs.gangs.values() if whole else ():
            if any(key in jobs for key in gang.members) and gang.bound and gang.terms:
                evicted = {o.pod for o in outcomes if isinstance(o, Evicted)}
                lost = [key for key, job in jobs.items() if job == gang.id[8:] and key in evicted]
                assert not lost or gang.bound >= gang.terms.min_member, (gang.id, lost)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(events=arrivals, config=st.sampled_from(["off", "on", "quota"]), allowed=st.integers(0, 1))
def test_no_eviction_without_effect(events: list[Sequence[Any]], config: str, allowed: int) -> None:
    """Jobs of all sizes are created, start, preempt and end."""
    configs = {"off": STOCK, "on": JOBS, "quota": config_of("ElasticQuota", jobs=True)}
    one = embedded(
        node("first", cpu=4),
        node("second", cpu=6),
        budget("keep", allowed, app="kept"),
        team("team", most=8),
        config=configs[config],
    )
    for number, event in enumerate(events):
        happen(one, number, event)
        check(one, whole=config != "off")


gpu_jobs = st.tuples(
    st.integers(1, 4),  # members
    st.lists(st.sampled_from([50, 100, 200]), min_size=1, max_size=2),  # percent of a GPU
    st.sampled_from(PRIORITIES),
)


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(
    jobs=st.lists(gpu_jobs, min_size=2, max_size=8),
    ended=st.lists(st.integers(0, 100), max_size=3),
)
def test_no_eviction_without_effect_for_gpus(
    jobs: list[tuple[int, list[int], int]], ended: list[int]
) -> None:
    """The specific GPUs of a victim matter, not only their number."""
    total: dict[str, Any] = {"koordinator.sh/gpu-core": 300, "koordinator.sh/gpu-memory-ratio": 300}
    one = embedded(
        *(node(f"n{i}", cpu=64, **total) for i in range(2)),
        *(device(f"n{i}", gpus=3) for i in range(2)),
        config=config_of("DeviceShare", jobs=True),
    )
    for number, (count, shares, priority) in enumerate(jobs):
        if number < len(ended):
            happen(one, number, ("delete", ended[number]))
        one.load([group(f"g{number}", count)])
        for index in range(count):
            share = shares[index % len(shares)]
            requests = {"koordinator.sh/gpu-core": share, "koordinator.sh/gpu-memory-ratio": share}
            name, gang = f"g{number}-{index}", f"g{number}"
            one.load([member(name, gang, 1, priority=priority, requests=requests)])
        check(one, whole=True)
