"""Order of a queue, its front, and reports of positions."""

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.annotations.quota import QueueOrder, QueuePolicy
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.domain.amounts import Amounts
from koordinator.domain.quota import QueueTerms
from koordinator.scheduler.rules.job_queues import (
    JobQueue,
    JobQueueCache,
    QueuedJob,
    QueueRules,
    ReportedPositions,
)

STRICT = QueueRules(QueuePolicy.STRICT)
FAIR = QueueRules(QueuePolicy.STRICT, QueueOrder.FAIR_SHARE)

JOBS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 3), st.integers(1, 5)),
    max_size=20,
)


def job(
    number: int, namespace: str = "a", priority: int = 0, arrived_s: float = 0.0, cpu: int = 1
) -> QueuedJob:
    name = f"{namespace}/{number}"
    return QueuedJob(name, name, namespace, priority, arrived_s, number, {"cpu": cpu})


def share(_namespace: str, more: Amounts) -> float:
    """Return no usage of a quota of 100, for every job."""
    return more.get("cpu", 0) / 100


def queue(rules: QueueRules, jobs: list[QueuedJob]) -> JobQueue:
    job_queue = JobQueue(rules)
    for one in jobs:
        job_queue.put(one)
    job_queue.validate()
    return job_queue


@given(JOBS)
def test_fifo_is_by_priority_then_arrival_then_observation(
    given_jobs: list[tuple[str, int, int, int]],
) -> None:
    """The order equals that of a sort, in whatever order jobs arrive."""
    jobs = [job(n, ns, prio, float(at), cpu) for n, (ns, prio, at, cpu) in enumerate(given_jobs)]

    ordered = list(queue(STRICT, jobs).in_order(share))

    assert ordered == sorted(jobs, key=lambda one: (-one.priority, one.arrived_s, one.sequence))


@given(JOBS)
def test_fair_share_keeps_priority_and_the_order_within_a_namespace(
    given_jobs: list[tuple[str, int, int, int]],
) -> None:
    """Every job is there once; of equal priority, the user of the least comes first."""
    jobs = [job(n, ns, prio, float(at), cpu) for n, (ns, prio, at, cpu) in enumerate(given_jobs)]

    ordered = list(queue(FAIR, jobs).in_order(share))

    assert sorted(ordered, key=lambda one: one.sequence) == jobs
    assert [one.priority for one in ordered] == sorted((j.priority for j in jobs), reverse=True)
    for namespace in "abc":
        own = [one for one in ordered if one.namespace == namespace]
        assert own == sorted(own, key=lambda one: one.rank)
    taken = dict.fromkeys("abc", 0)
    for at, one in enumerate(ordered):
        rivals = {j.namespace for j in ordered[at:] if j.priority == one.priority}
        assert taken[one.namespace] == min(taken[rival] for rival in rivals)
        taken[one.namespace] += one.request["cpu"]


@given(JOBS, st.lists(st.integers(0, 19)))
def test_removed_jobs_are_forgotten(
    given_jobs: list[tuple[str, int, int, int]], leaving: list[int]
) -> None:
    """Lines and index agree after any removals."""
    jobs = [job(n, ns, prio, float(at), cpu) for n, (ns, prio, at, cpu) in enumerate(given_jobs)]
    made = queue(FAIR, jobs)

    for number in leaving:
        if number < len(jobs):
            made.drop(jobs[number].id)
            made.validate()

    assert {one.sequence for one in made.in_order(share)} == set(range(len(jobs))) - set(leaving)


def test_a_job_that_leaves_lets_the_next_one_to_the_front() -> None:
    """The cache names each job once, when it comes to the front."""
    cache = JobQueueCache()
    cache.set_rules({"q": STRICT})
    for number in range(3):
        cache.put("q", job(number))
    first = cache.advance("q", share)
    again = cache.advance("q", share)
    cache.leave("a/0")
    second = cache.advance("q", share)

    assert [one.id for one in (*first, *again, *second)] == ["a/0", "a/1"]
    assert not cache.may_be_tried("a/2")
    cache.validate()


def test_a_job_that_moves_is_in_one_queue_only() -> None:
    """The job joins the queue of its new quota, and leaves the old one."""
    cache = JobQueueCache()
    cache.set_rules({"q": STRICT, "r": FAIR})
    cache.put("q", job(1))
    cache.put("r", job(1))

    assert (len(cache.queues["q"]), len(cache.queues["r"])) == (0, 1)
    cache.validate()


def test_new_rules_keep_the_jobs_and_no_rules_free_them() -> None:
    """Jobs of a deleted queue need not wait any more."""
    cache = JobQueueCache()
    cache.set_rules({"q": STRICT, "r": STRICT})
    cache.put("q", job(1))
    cache.put("r", job(2))

    assert cache.set_rules({"q": FAIR}) == ["a/2"]
    assert [one.id for one in cache.advance("q", share)] == ["a/1"]
    cache.validate()


def test_the_annotations_go_before_the_arguments() -> None:
    """Arguments of the plugin apply where a quota has no annotation."""
    args = ElasticQuotaArgs(default_queue_policy="backfill", default_queue_depth=7)

    assert QueueRules.of(QueueTerms(), ElasticQuotaArgs()) is None
    assert QueueRules.of(QueueTerms(policy=QueuePolicy.NONE), args) is None
    assert QueueRules.of(QueueTerms(order=QueueOrder.FAIR_SHARE), args) == QueueRules(
        QueuePolicy.BACKFILL, QueueOrder.FAIR_SHARE, 7
    )


def test_few_of_ten_thousand_places_are_updated_again() -> None:
    """A job is reported when it comes, when half of those before it have left, and near the end.

    So its place is reported some twenty times, not ten thousand times.
    """
    reported_positions = ReportedPositions()
    jobs = [job(number) for number in range(1_000)]
    updates = 0
    while jobs:
        for place in reported_positions.due(jobs):
            reported_positions.note(place)
            updates += place.job.sequence == 999
        jobs.pop(0)

    assert updates == 1 + 9 + 3  # then halves down to 7 or 8, then places 5 to 1
