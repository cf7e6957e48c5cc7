"""Changes of trees of PodGroups: applied together, with the outcome of one by one."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.examples import examples
from tests.unit.scheduler.test_composite_pod_groups import composite, leaf, members
from tests.unit.scheduler.test_scheduling_pod_groups import pod_group

from koordinator.api.kube_version import KubeVersion
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import CompositePodGroup, SchedulingPodGroup
from koordinator.domain.gangs import GangCache, GangDefaults, WorkloadRefs
from koordinator.scheduler.features.gangs.metrics import GangMetrics

NAMES = ("a", "b", "c")
UPPER = ("x", "y", "z")
PODS = {name: members(name, 1)[0] for name in NAMES}


def new_cache() -> GangCache:
    level = KubeVersion.parse("1.37")
    return GangCache(GangDefaults(refs=WorkloadRefs.FIRST, level=level, trees=True))


def put(cache: GangCache, *objects: Any) -> list[str]:
    """Add objects; return the pods that may enter the queue."""
    ready: list[str] = []
    for one in objects:
        if isinstance(one, CompositePodGroup):
            cache.put_composite(one)
        elif isinstance(one, SchedulingPodGroup):
            ready += cache.put_pod_group(one)
        elif isinstance(one, Pod):
            ready += cache.put_pod(one)
    return ready


def drop(cache: GangCache, deleted: Any) -> None:
    if isinstance(deleted, CompositePodGroup):
        cache.drop_composite(deleted)
    elif isinstance(deleted, SchedulingPodGroup):
        cache.drop_pod_group(deleted)
    elif deleted is not None:
        cache.drop_pod(deleted)


def test_a_change_of_many_groups_concerns_each_of_them_once() -> None:
    """A change affects each group once, however many groups its tree has."""
    cache, count = new_cache(), 50
    groups = [leaf(f"g{at}", 1, "job") for at in range(count)]
    pods = [pod for at in range(count) for pod in members(f"g{at}", 1)]
    put(cache, *pods)

    assert put(cache, composite("job", count), *groups) == []
    assert sorted(cache.take_enqueueable()) == sorted(pod.key for pod in pods)
    assert cache.take_enqueueable() == []
    versions = {gang.version for gang in cache.gangs.values()}
    assert versions == {next(iter(cache.gangs.values())).version}
    assert [pod.key for pod in pods if not cache.why_gated(pod)] == [pods[0].key]


def test_a_scrape_leaves_the_changes_to_the_thread_of_the_scheduler() -> None:
    """The metrics are read by any thread, while the scheduler changes the trees."""
    cache, metrics = new_cache(), GangMetrics(CollectorRegistry())
    metrics.watch([cache])
    put(cache, *PODS.values(), composite("job", 2), leaf("a", 1, "job"), leaf("b", 1, "job"))
    assert cache.forest.is_changed

    assert [*metrics.collect()]
    assert cache.forest.is_changed


def test_gangs_that_are_read_have_the_terms_of_their_trees() -> None:
    """All members are found, whether the pods were listed before or after."""
    cache = new_cache()
    put(cache, *PODS.values(), composite("job", 2), leaf("a", 1, "job"))
    assert "CompositePodGroup default/job needs 2 groups" in cache.shortage(PODS["a"])
    put(cache, leaf("b", 1, "job"))
    assert cache.shortage(PODS["a"]) == ""

    assert set(cache.take_enqueueable()) == {PODS["a"].key, PODS["b"].key}


def test_a_member_more_or_less_is_counted_at_once() -> None:
    """Results for the previous members are valid until then."""
    cache = new_cache()
    put(cache, composite("job", 2), leaf("a", 1, "job"), leaf("b", 1, "job"), PODS["a"])
    assert cache.shortage(PODS["a"])
    put(cache, PODS["b"])
    assert not cache.shortage(PODS["a"])
    cache.drop_pod(PODS["b"])
    assert cache.shortage(PODS["a"])


PARENTS = st.sampled_from(("", *UPPER))
STEPS = st.one_of(
    st.tuples(st.just("group"), st.sampled_from(NAMES), PARENTS, st.integers(1, 2)),
    st.tuples(st.just("composite"), st.sampled_from(UPPER), PARENTS, st.integers(0, 2)),
    st.tuples(st.just("pod"), st.sampled_from(NAMES), st.just(""), st.just(0)),
    st.tuples(st.just("drop"), st.sampled_from(NAMES + UPPER), st.just(""), st.integers(0, 1)),
    st.tuples(st.just("read"), st.sampled_from(NAMES), st.just(""), st.just(0)),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_the_order_of_changes_and_of_reading_does_not_matter(
    steps: list[tuple[str, str, str, int]],
) -> None:
    """Compared with a cache that gets the last objects alone."""
    cache, there = new_cache(), dict[str, Any]()
    for kind, name, parent, least in steps:
        if kind == "group":
            there[name] = leaf(name, least, parent) if parent else pod_group(name, least)
            put(cache, there[name])
        elif kind == "composite":
            there[name] = composite(name, least, parent)
            put(cache, there[name])
        elif kind == "pod":
            there[f"pod {name}"] = PODS[name]
            put(cache, PODS[name])
        elif kind == "read":
            cache.shortage(PODS[name])
        else:
            drop(cache, there.pop(f"pod {name}" if least else name, None))
    other = new_cache()
    put(other, *there.values())
    cache.validate()

    assert cache.gangs.keys() == other.gangs.keys()
    for own_id, gang in cache.gangs.items():
        assert gang.terms == other.gangs[own_id].terms
    for name in NAMES:
        assert cache.shortage(PODS[name]) == other.shortage(PODS[name])
