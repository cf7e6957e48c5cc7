"""Queues through the whole scheduler: jobs of a quota wait in order, only the first are tried."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import put, team
from tests.unit.scheduler.test_gangs import condition, group, members, placed
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.worlds import START_S, embedded, node, pod

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.scheduler.contract import QueueGate
from koordinator.scheduler.features.quotas import JobQueueFeature
from koordinator.scheduler.queue import QueueState, SchedulingQueue
from koordinator.scheduler.rules.job_queues import JobQueueCache
from koordinator.simulator import Embedded

LABEL = PREFIX + "name"
GANG = "gang.scheduling.koordinator.sh/"


def queued(policy: str = "strict", most: int = 100, **said: Any) -> ElasticQuota:
    """Return the quota ``team`` with a queue."""
    texts = {f"{PREFIX}queue-{key}": str(text) for key, text in {"policy": policy, **said}.items()}
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
    found = one.scheduler.feature(JobQueueFeature)
    assert found is not None
    return found.cache


def checked(one: Embedded) -> None:
    one.scheduler.validate()
    queues_of(one).validate()


def test_nobody_overtakes_the_head_of_a_strict_queue() -> None:
    """A small pod that would fit waits behind a large one, and costs no attempt."""
    one = world(node("a", cpu=4), queued(), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    assert placed(one) == {}
    waiting = one.scheduler.queue.get("default/small")
    assert waiting is not None
    assert (waiting.state, waiting.attempts) == (QueueState.GATED, 0)
    checked(one)


def test_without_a_queue_the_small_pod_runs() -> None:
    """Queues are off unless asked for."""
    one = world(node("a", cpu=4), team("team", 100), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}


@pytest.mark.parametrize("policy", ["backfill", "best-effort"])
def test_a_smaller_job_may_pass_where_the_policy_lets_it(policy: str) -> None:
    """The room that the head can't use is used by one that asks for less."""
    one = world(node("a", cpu=4), queued(policy), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}
    checked(one)


def test_backfill_lets_only_smaller_jobs_pass() -> None:
    """One that asks for more of some resource waits behind the head, best-effort or not."""
    large, odd = one_of("large", 8), one_of("odd", 1, memory="4Gi")
    found = {}
    for policy in ("backfill", "best-effort"):
        one = world(node("a", cpu=4, memory="8Gi"), queued(policy), large, odd)
        one.run_to_fixed_point()
        found[policy] = placed(one)

    assert found == {"backfill": {}, "best-effort": {"odd": "a"}}


def test_only_so_many_jobs_are_looked_at() -> None:
    """The depth bounds who may be tried at once."""
    jobs = [one_of(f"p{index}", 8 - index) for index in range(6)]
    one = world(node("a", cpu=3), queued("backfill", depth=3), *jobs)

    one.run_to_fixed_point()

    assert placed(one) == {}
    assert one.scheduler.queue.counts()[QueueState.GATED] == 3


def test_higher_priority_is_first_and_then_who_came_first() -> None:
    """With room for one after the other the order of starts is that of the queue."""
    jobs = [one_of("first", 2), one_of("second", 2), one_of("urgent", 2, priority=10)]
    one = world(node("a", cpu=2), queued(), *jobs)
    one.run_to_fixed_point()
    order = [*placed(one)]
    for _ in jobs[1:]:
        finish(one, order[-1])
        order += placed(one)

    assert order == ["urgent", "first", "second"]
    checked(one)


def test_who_comes_with_higher_priority_goes_before_the_head() -> None:
    """The former head, which was being tried, waits behind it even if it would fit now."""
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


def test_fair_share_lets_the_namespace_with_less_go_first() -> None:
    """Two namespaces that ask alike start alike, whoever came first."""
    early = [one_of(f"a{index}", 1) for index in range(4)]
    late = [one_of(f"b{index}", 1, namespace="other") for index in range(4)]
    one = world(node("n", cpu=4), queued(order="fair-share"), *early, *late)

    one.run_to_fixed_point()

    assert sorted(placed(one)) == ["a0", "a1", "b0", "b1"]
    checked(one)


def test_fair_share_counts_what_runs_already() -> None:
    """Who uses half of the quota lets the other one go first until that is even."""
    running = [one_of(f"r{index}", 1, on="n") for index in range(2)]
    jobs = [one_of("a", 1), *(one_of(f"b{i}", 1, namespace="other") for i in range(3))]
    one = world(node("n", cpu=4), queued(order="fair-share"), *running, *jobs)

    one.run_to_fixed_point()

    assert set(placed(one)) == {"r0", "r1", "b0", "b1"}


def test_a_gang_is_one_job() -> None:
    """A gang behind the head costs nothing, and starts as a whole when its turn comes."""
    gang = members("g", 3, labels={LABEL: "team"})
    one = world(node("a", cpu=4), queued(), one_of("large", 8), group("g", 3), *gang)
    one.run_to_fixed_point()
    assert placed(one) == {}

    finish(one, "large")

    assert len(placed(one)) == 3
    checked(one)


def test_a_gang_short_of_members_holds_up_nobody() -> None:
    """It joins the queue when it could start."""
    one = world(node("a", cpu=4), queued(), group("g", 3), *members("g", 2, labels={LABEL: "team"}))
    one.load([one_of("later", 1)])

    one.run_to_fixed_point()

    assert placed(one) == {"later": "a"}


def test_a_gang_that_loses_a_member_leaves_the_queue() -> None:
    """The next job does not wait for one that can't start."""
    gang = members("g", 3, cpu=2, labels={LABEL: "team"})
    one = world(node("a", cpu=4), queued(), group("g", 3), *gang)
    one.load([one_of("later", 1)])
    one.run_to_fixed_point()
    assert placed(one) == {}

    finish(one, "g-1")

    assert placed(one) == {"later": "a"}
    checked(one)


def test_a_gang_whose_speaker_goes_keeps_its_place() -> None:
    """Another member stands for it."""
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


def test_the_pod_group_says_its_place_and_why() -> None:
    """Position and reason stand in annotations of the PodGroup, and go when it starts."""
    gang = members("g", 2, labels={LABEL: "team"})
    one = world(node("a", cpu=4), queued(), one_of("large", 8), group("g", 2), *gang)
    one.run_to_fixed_point()

    said = one.cluster.get(PodGroup, "g", "default").metadata.annotations
    assert said[GANG + "queue-position"] == "2"
    assert said[GANG + "queue-reason"].startswith(
        "position 2 of 2 in the queue of quota team (strict) when this was written; the first is "
        "default/large, which waits: 0/1 nodes are available: Insufficient quotas, quotaName: team"
    )
    finish(one, "large")
    one.run_to_fixed_point()
    assert one.cluster.get(PodGroup, "g", "default").metadata.annotations == {}


def test_a_single_pod_is_told_its_place() -> None:
    """In its condition, which says that room would not help."""
    one = world(node("a", cpu=4), queued(), one_of("large", 8), one_of("small", 1))

    one.run_to_fixed_point()

    reason, text = condition(one, "small")
    assert reason == "SchedulingGated"
    assert text.startswith("position 2 of 2 in the queue of quota team (strict)")


def test_a_policy_taken_back_frees_those_who_wait() -> None:
    """The annotation is read whenever it changes."""
    one = world(node("a", cpu=4), queued(), one_of("large", 8), one_of("small", 1))
    one.run_to_fixed_point()

    none = {"metadata": {"annotations": {PREFIX + "queue-policy": "none"}}}
    one.cluster.patch(ElasticQuota, "team", "tenants", none)
    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}
    checked(one)


def test_a_pod_that_changes_its_quota_changes_the_queue() -> None:
    """It waits where its label says."""
    one = world(
        node("a", cpu=4), queued(), team("free", 10, 1), one_of("large", 8), one_of("small", 1)
    )
    one.run_to_fixed_point()

    one.cluster.patch(Pod, "small", "default", {"metadata": {"labels": {LABEL: "free"}}})
    one.run_to_fixed_point()

    assert placed(one) == {"small": "a"}
    checked(one)


def test_a_quota_without_room_holds_its_queue() -> None:
    """The head waits for room in the quota; when there is some, it starts first."""
    one = world(node("a", cpu=8), queued(most=1), one_of("two", 2), one_of("one", 1))
    one.run_to_fixed_point()
    assert placed(one) == {}

    put(one, queued(most=2))
    one.run_to_fixed_point()

    assert placed(one) == {"two": "a"}


def test_a_job_whose_start_failed_is_first_again_but_after_its_backoff() -> None:
    """A cluster that refuses it is not asked over and over."""
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
    """Places come from creation times."""
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


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(["strict", "backfill", "best-effort"]),
    order=st.sampled_from(["fifo", "fair-share"]),
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=6
    ),
    finished=st.lists(st.integers(0, 20), max_size=6),
)
def test_everything_that_fits_starts_in_the_end(
    policy: str, order: str, jobs: list[tuple[int, int, int]], finished: list[int]
) -> None:
    """Whatever comes and goes, indices stay right and nobody is forgotten in a queue."""
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
