"""Job queues in the whole scheduler: jobs of a quota wait in order, only the first are tried."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import put, team
from tests.unit.scheduler.test_gangs import condition, group, members, placed
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.worlds import START_S, embedded, node, pod

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.scheduler.contract import QueueGate
from koordinator.scheduler.features.quotas import JobQueueFeature
from koordinator.scheduler.queue import QueueState, SchedulingQueue
from koordinator.scheduler.rules.job_queues import JobQueueCache
from koordinator.simulator import Embedded

LABEL = PREFIX + "name"
GANG = "gang.scheduling.koordinator.sh/"


def queued(policy: str = "strict", most: int = 100, **settings: Any) -> ElasticQuota:
    """Return the quota ``team`` with a queue."""
    texts = {
        f"{PREFIX}queue-{key}": str(text) for key, text in {"policy": policy, **settings}.items()
    }
    return team("team", most, annotations=texts)


def one_of(name: str, cpu: int, **more: Any) -> Pod:
    """Return a pod of the quota ``team``."""
    return pod(name, cpu, labels={LABEL: "team"}, **more)


def world(*objects: Any, **options: Any) -> Embedded:
    return embedded(*objects, config=BOTH, **options)


def finish(one: Embedded, name: str) -> None:
    one.cluster.delete(Pod, name, "default")
    one.run_to_fixed_point()


def queues_of(one: Embedded) -> JobQueueCache:
    feature = one.scheduler.feature(JobQueueFeature)
    assert feature is not None
    return feature.cache


def checked(one: Embedded) -> None:
    one.scheduler.validate()
    queues_of(one).validate()


def test_head_of_a_strict_queue_is_not_overtaken() -> None:
    """A small pod that would fit waits behind a large one without an attempt."""
    one = world(node("a", cpu=4), queued(), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    assert placed(one) == {}
    waiting = one.scheduler.queue.get("default/small")
    assert waiting is not None
    assert (waiting.state, waiting.attempts) == (QueueState.GATED, 0)
    checked(one)


def test_without_a_queue_the_small_pod_runs() -> None:
    """Queues are off by default."""
    one = world(node("a", cpu=4), team("team", 100), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}


@pytest.mark.parametrize("policy", ["backfill", "best-effort"])
def test_smaller_job_may_pass_if_the_policy_allows(policy: str) -> None:
    """A job with smaller requests uses the capacity that the head cannot use."""
    one = world(node("a", cpu=4), queued(policy), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}
    checked(one)


def test_backfill_lets_only_smaller_jobs_pass() -> None:
    """A job that requests more of some resource waits behind the head."""
    large, odd = one_of("large", 8), one_of("odd", 1, memory="4Gi")
    by_policy = {}
    for policy in ("backfill", "best-effort"):
        one = world(node("a", cpu=4, memory="8Gi"), queued(policy), large, odd)
        one.run_to_fixed_point()
        by_policy[policy] = placed(one)

    assert by_policy == {"backfill": {}, "best-effort": {"odd": "a"}}


@pytest.mark.parametrize(
    ("gates", "passes"), [("", False), ("ElasticQuotaIgnorePodOverhead=true", True)]
)
def test_backfill_compares_what_the_quota_counts(gates: str, *, passes: bool) -> None:
    """The overhead of a runtime class makes a small job larger, unless a gate is on."""
    boxed = one_of("boxed", 2, overhead={"cpu": "7"})
    there = [node("a", cpu=16, memory="8Gi"), pod("p", 9, on="a"), queued("backfill")]
    one = world(*there, one_of("large", 8), boxed, gates=FeatureGates.parse(gates))

    one.run_to_fixed_point()

    waits = condition(one, "boxed")[1]
    assert waits.startswith("0/1 nodes") is passes


def test_number_of_considered_jobs_is_limited() -> None:
    """The depth is the number of jobs that may be tried."""
    jobs = [one_of(f"p{index}", 8 - index) for index in range(6)]
    one = world(node("a", cpu=3), queued("backfill", depth=3), *jobs)

    one.run_to_fixed_point()

    assert placed(one) == {}
    assert one.scheduler.queue.counts()[QueueState.GATED] == 3


def test_queue_order_is_priority_then_arrival() -> None:
    """With capacity for one job at a time, jobs start in this order."""
    jobs = [one_of("first", 2), one_of("second", 2), one_of("urgent", 2, priority=10)]
    one = world(node("a", cpu=2), queued(), *jobs)
    one.run_to_fixed_point()
    order = [*placed(one)]
    for _ in jobs[1:]:
        finish(one, order[-1])
        order += placed(one)

    assert order == ["urgent", "first", "second"]
    checked(one)


def test_job_of_higher_priority_becomes_the_head() -> None:
    """The former head waits behind it even if it would fit now."""
    one = world(node("a", cpu=2), queued(), one_of("head", 4))
    one.run_to_fixed_point()

    one.load([one_of("urgent", 8, priority=10)])
    one.run_to_fixed_point()
    one.load([node("b", cpu=4)])
    one.run_to_fixed_point()

    assert placed(one) == {}
    one.load([node("c", cpu=8)])
    one.run_to_fixed_point()
    assert set(placed(one)) == {"urgent", "head"}


def test_fair_share_prefers_the_namespace_with_less_usage() -> None:
    """Two namespaces with equal requests start alternately, whatever the order of arrival."""
    early = [one_of(f"a{index}", 1) for index in range(4)]
    late = [one_of(f"b{index}", 1, namespace="other") for index in range(4)]
    one = world(node("n", cpu=4), queued(order="fair-share"), *early, *late)

    one.run_to_fixed_point()

    assert sorted(placed(one)) == ["a0", "a1", "b0", "b1"]
    checked(one)


def test_fair_share_counts_running_pods() -> None:
    """A namespace that uses half of the quota waits until usage is even."""
    running = [one_of(f"r{index}", 1, on="n") for index in range(2)]
    jobs = [one_of("a", 1), *(one_of(f"b{i}", 1, namespace="other") for i in range(3))]
    one = world(node("n", cpu=4), queued(order="fair-share"), *running, *jobs)

    one.run_to_fixed_point()

    assert set(placed(one)) == {"r0", "r1", "b0", "b1"}


def test_a_gang_is_one_job() -> None:
    """A gang behind the head is not tried, and starts as a whole at its turn."""
    gang = members("g", 3, labels={LABEL: "team"})
    one = world(node("a", cpu=4), queued(), one_of("large", 8), group("g", 3), *gang)
    one.run_to_fixed_point()
    assert placed(one) == {}

    finish(one, "large")

    assert len(placed(one)) == 3
    checked(one)


def test_incomplete_gang_does_not_block_the_queue() -> None:
    """The gang joins the queue once it is complete."""
    one = world(node("a", cpu=4), queued(), group("g", 3), *members("g", 2, labels={LABEL: "team"}))
    one.load([one_of("later", 1)])

    one.run_to_fixed_point()

    assert placed(one) == {"later": "a"}


def test_a_gang_that_loses_a_member_leaves_the_queue() -> None:
    """The next job does not wait for one that cannot start."""
    gang = members("g", 3, cpu=2, labels={LABEL: "team"})
    one = world(node("a", cpu=4), queued(), group("g", 3), *gang)
    one.load([one_of("later", 1)])
    one.run_to_fixed_point()
    assert placed(one) == {}

    finish(one, "g-1")

    assert placed(one) == {"later": "a"}
    checked(one)


def test_gang_keeps_its_position_without_its_representative() -> None:
    """Another member becomes the representative."""
    gang = members("g", 4, cpu=2, labels={LABEL: "team"})
    one = world(node("a", cpu=4), queued(), group("g", 3), *gang)
    one.load([one_of("later", 1)])
    one.run_to_fixed_point()
    representative = queues_of(one).job("default/g")
    assert representative is not None

    finish(one, representative.pod.partition("/")[2])

    assert placed(one) == {}
    one.load([node("b", cpu=8)])
    one.run_to_fixed_point()
    assert len(placed(one)) == 4
    checked(one)


def test_pod_group_has_its_queue_position_and_reason() -> None:
    """Annotations of the PodGroup have position and reason, and are removed at the start."""
    gang = members("g", 2, labels={LABEL: "team"})
    one = world(node("a", cpu=4), queued(), one_of("large", 8), group("g", 2), *gang)
    one.run_to_fixed_point()

    annotations = one.cluster.get(PodGroup, "g", "default").metadata.annotations
    assert annotations[GANG + "queue-position"] == "2"
    assert annotations[GANG + "queue-reason"].startswith(
        "position 2 of 2 in the queue of quota team (strict) when this was written; the first is "
        "default/large, which waits: 0/1 nodes are available: Insufficient quotas, quotaName: team"
    )
    finish(one, "large")
    one.run_to_fixed_point()
    assert one.cluster.get(PodGroup, "g", "default").metadata.annotations == {}


def test_single_pod_has_its_queue_position() -> None:
    """The condition has the position, and marks the pod as gated."""
    one = world(node("a", cpu=4), queued(), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    reason, text = condition(one, "small")
    assert reason == "SchedulingGated"
    assert text.startswith("position 2 of 2 in the queue of quota team (strict)")


def test_removed_policy_releases_waiting_jobs() -> None:
    """The annotation is read whenever it changes."""
    one = world(node("a", cpu=4), queued(), one_of("large", 8), one_of("small", 1))
    one.run_to_fixed_point()

    none = {"metadata": {"annotations": {PREFIX + "queue-policy": "none"}}}
    one.cluster.patch(ElasticQuota, "team", "tenants", none)
    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}
    checked(one)


def test_a_pod_that_changes_its_quota_changes_the_queue() -> None:
    """The pod waits in the queue of the quota that its label names."""
    one = world(
        node("a", cpu=4), queued(), team("free", 10, 1), one_of("large", 8), one_of("small", 1)
    )
    one.run_to_fixed_point()

    one.cluster.patch(Pod, "small", "default", {"metadata": {"labels": {LABEL: "free"}}})
    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}
    checked(one)


def test_full_quota_holds_its_queue() -> None:
    """The head waits for capacity in the quota, and starts first."""
    one = world(node("a", cpu=8), queued(most=1), one_of("two", 2), one_of("one", 1))
    one.run_to_fixed_point()
    assert placed(one) == {}

    put(one, queued(most=2))
    one.run_to_fixed_point()

    assert placed(one) == {"two": "a"}


def test_job_whose_start_failed_stays_first_after_its_backoff() -> None:
    """Binds that a cluster refuses are not retried continuously."""
    gate: list[QueueGate] = []
    queue = SchedulingQueue({}, lambda _: gate[0] if gate else None)
    queue.add(one_of("a", 1), None, START_S)
    popped = queue.pop(START_S)
    assert popped is not None
    gate.append(QueueGate("JobQueue", "waits"))
    queue.fail(popped, "refused", START_S)
    assert popped.state == QueueState.GATED

    gate.clear()
    queue.release([popped.key, "default/missing"], START_S)

    assert popped.state is QueueState.BACKOFF
    queue.flush(START_S + 10)
    assert popped.state is QueueState.ACTIVE
    queue.validate()


def test_a_restart_does_not_change_the_order() -> None:
    """Positions come from creation times."""
    jobs = [one_of("z", 4), one_of("b", 4), one_of("a", 4)]
    one = world(node("n", cpu=2), queued())
    for job in jobs:
        one.load([job])
        one.clock.advance_to(one.clock.now_s() + 2.0)
    one.run_to_fixed_point()
    again = Embedded(BOTH, now_s=one.clock.now_s())
    again.load([*one.cluster.list(ElasticQuota).items, *one.cluster.list(Pod).items])

    again.run_to_fixed_point()

    assert [job.id for job in queues_of(again).queues["team"].in_order(_no_share)] == [
        "default/z",
        "default/b",
        "default/a",
    ]


def _no_share(_namespace: str, _more: object) -> float:
    return 0.0


@settings(max_examples=examples(25), deadline=None)
@given(
    policy=st.sampled_from(["strict", "backfill", "best-effort"]),
    order=st.sampled_from(["fifo", "fair-share"]),
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=6
    ),
    finished=st.lists(st.integers(0, 20), max_size=6),
)
def test_every_job_that_fits_finally_starts(
    policy: str, order: str, jobs: list[tuple[int, int, int]], finished: list[int]
) -> None:
    """Under churn all indices stay consistent and no job is lost."""
    one = world(node("a", cpu=6), queued(policy, order=order))
    for index, (size, cpu, priority) in enumerate(jobs):
        name = f"g{index}"
        gang = members(name, size, cpu=cpu, labels={LABEL: "team"}, priority=priority)
        one.load([group(name, size), *gang])
        one.scheduler.step()
        checked(one)
    one.run_to_fixed_point()
    for number in finished:
        running = sorted(placed(one))
        if running:
            finish(one, running[number % len(running)])
        checked(one)
    one.load([node(f"n{index}", cpu=4) for index in range(20)])
    one.run_to_fixed_point()

    waiting = [p for p in one.cluster.list(Pod).items if not p.spec.node_name]
    assert waiting == []
    queues_of(one).validate()
