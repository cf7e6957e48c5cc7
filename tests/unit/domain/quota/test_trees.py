"""All quotas of a cluster: several trees, and the quota of each pod."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.quota.quotas import CHIP, pod, quota

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.domain.quota import QuotaPod, QuotaRules, QuotaTrees, figures_of
from koordinator.foundation.errors import InputError

NO_LIMIT = {"cpu": 1 << 60, CHIP: 1 << 60}


def trees(**rules: bool) -> QuotaTrees:
    return QuotaTrees(QuotaRules(system_max=NO_LIMIT, default_max=NO_LIMIT, **rules))


def runtime(made: QuotaTrees, name: str) -> int:
    return made.tree_of(name).runtime(name)[CHIP]


def test_a_pod_s_label_names_its_quota() -> None:
    """Before its namespace; an unknown name leads to the default quota."""
    made = trees()
    made.put(quota("a", most={CHIP: 10}, bound=("ns",)))
    made.put(quota("b", most={CHIP: 10}))

    assert made.quota_for(pod("ns/p", label="b")) == "b"
    assert made.quota_for(pod("ns/p", label="unknown")) == DEFAULT_QUOTA
    assert made.quota_for(pod("ns/p", label=ROOT_QUOTA)) == DEFAULT_QUOTA
    assert made.quota_for(pod("ns/p", label=SYSTEM_QUOTA)) == SYSTEM_QUOTA


def test_the_namespace_decides_for_a_pod_without_label() -> None:
    """A quota named as the namespace in it, else the first by name that is bound to it."""
    made = trees()
    made.put(quota("z", most={CHIP: 10}, bound=("ns", "other")))
    made.put(quota("a", most={CHIP: 10}, bound=("ns",)))
    assert made.quota_for(pod("ns/p")) == "a"
    assert made.quota_for(pod("other/p")) == "z"
    assert made.quota_for(pod("third/p")) == DEFAULT_QUOTA

    made.put(quota("ns", namespace="elsewhere", most={CHIP: 10}))
    assert made.quota_for(pod("ns/p")) == "a"
    made.put(quota("ns", namespace="ns", most={CHIP: 10}))
    assert made.quota_for(pod("ns/p")) == "ns"


def test_without_default_quota_only_a_label_counts() -> None:
    """Gate DisableDefaultQuota: all other pods are not limited by any quota."""
    made = trees(has_default_quota=False)
    made.put(quota("a", most={CHIP: 10}, bound=("ns",)))
    for one in (
        pod("ns/free", chip=1),
        pod("ns/lost", label="b", chip=2),
        pod("ns/in", label="a", chip=4),
    ):
        made.put_pod(one)
        made.assign(one.key)

    assert [made.quota_of(f"ns/{name}") for name in ("free", "lost", "in")] == [None, None, "a"]
    assert figures_of(made.tree(""), ROOT_QUOTA).used == {CHIP: 4}
    made.put(quota("b", most={CHIP: 10}))
    assert figures_of(made.tree(""), "b").used == {CHIP: 2}


def test_pods_follow_their_quota() -> None:
    """A pod may be there before its quota, and returns to the default quota after its deletion."""
    made = trees()
    made.put_pod(pod("ns/p", label="a", chip=3))
    made.assign("ns/p")
    assert made.quota_of("ns/p") == DEFAULT_QUOTA

    late = quota("a", most={CHIP: 10})
    made.put(late)
    assert made.quota_of("ns/p") == "a"
    assert figures_of(made.tree(""), "a").used == {CHIP: 3}
    assert figures_of(made.tree(""), DEFAULT_QUOTA).used == {"cpu": 0, CHIP: 0}

    made.remove(late)
    assert figures_of(made.tree(""), DEFAULT_QUOTA).used == {"cpu": 0, CHIP: 3}
    made.unassign("ns/p")
    assert figures_of(made.tree(""), DEFAULT_QUOTA).used == {"cpu": 0, CHIP: 0}
    for _ in range(2):  # a deletion may be reported twice
        made.remove_pod("ns/p")
        made.unassign("ns/p")
    assert figures_of(made.tree(""), ROOT_QUOTA).used == {}


def test_what_a_tree_has_the_default_tree_has_not() -> None:
    """A root labelled ignore-default-tree takes nothing from the default tree's total."""
    made = trees(has_trees=True)
    made.set_total({CHIP: 100})
    root = quota("pool", most={CHIP: 1 << 50}, is_parent=True, tree="t", total={CHIP: 30})
    made.put(root)
    made.put(quota("in-pool", "pool", most={CHIP: 90}, tree="t"))
    made.put(quota("outside", most={CHIP: 90}))
    made.put_pod(pod("ns/a", label="in-pool", chip=90))
    made.put_pod(pod("ns/b", label="outside", chip=90))
    assert made.tree_ids == ["", "t"]
    assert (runtime(made, "in-pool"), runtime(made, "outside")) == (30, 70)

    ignoring = {"quota.scheduling.koordinator.sh/ignore-default-tree": "true"}
    made.put(quota("pool", most={CHIP: 90}, tree="t", total={CHIP: 40}, labels=ignoring))
    assert (runtime(made, "in-pool"), runtime(made, "outside")) == (40, 90)

    made.remove(root)
    assert (runtime(made, "in-pool"), runtime(made, "outside")) == (0, 90)
    made.remove(quota("in-pool"))
    assert made.tree_ids == [""]
    assert made.quota_of("ns/a") == DEFAULT_QUOTA


def test_without_the_gate_all_quotas_are_in_one_tree() -> None:
    """Tree ids and totals are not looked at."""
    made = trees()
    made.set_total({CHIP: 100})
    made.put(quota("pool", most={CHIP: 90}, tree="t", total={CHIP: 30}))

    assert made.tree_ids == [""]
    assert made.tree_of("pool").runtime(ROOT_QUOTA) == {CHIP: 100}


def test_objects_of_built_in_quotas_set_their_maximum() -> None:
    """Nothing else, and nothing at all of the root."""
    made = trees()
    changed = quota(DEFAULT_QUOTA, "somewhere", most={CHIP: 7}, least={CHIP: 5})
    made.put(changed)
    made.put(quota(ROOT_QUOTA, most={CHIP: 7}))
    assert made.tree_of(DEFAULT_QUOTA).runtime(DEFAULT_QUOTA) == {CHIP: 7}
    assert sorted(made.names) == [DEFAULT_QUOTA, SYSTEM_QUOTA]

    made.remove(changed)
    assert made.tree_of(DEFAULT_QUOTA).runtime(DEFAULT_QUOTA) == NO_LIMIT


def test_broken_stored_quotas_are_read() -> None:
    """Negative amounts are 0, minimums end at the maximum, old names of resources are today's."""
    made = trees()
    made.put(
        quota(
            "a",
            most={CHIP: 4, "cpu": -1, "koordinator.sh/batch-cpu": 5},
            least={CHIP: 9, "memory": 1},
            annotations={
                "quota.scheduling.koordinator.sh/shared-weight": "{",
                "quota.scheduling.koordinator.sh/namespaces": "ns",
            },
        )
    )

    figures = figures_of(made.tree(""), "a")
    assert figures.max == figures.weight == {CHIP: 4, "cpu": 0, "kubernetes.io/batch-cpu": 5}
    assert figures.min == {CHIP: 4}


def test_the_total_of_a_tree_counts_only_if_it_can_be_read() -> None:
    """Quotas of a tree with an invalid total get their minimum."""
    made = trees(has_trees=True)
    broken = {"quota.scheduling.koordinator.sh/total-resource": "{"}
    made.put(
        quota("a", most={CHIP: 9}, least={CHIP: 2}, tree="t", total={CHIP: 9}, annotations=broken)
    )
    made.put_pod(pod("ns/p", label="a", chip=9))

    assert runtime(made, "a") == 2


def test_a_quota_of_the_same_name_replaces_another() -> None:
    """The deletion of the replaced one does not delete the other."""
    made = trees()
    made.put(quota("a", namespace="one", most={CHIP: 4}))
    made.put(quota("a", namespace="two", most={CHIP: 5}))
    made.remove(quota("a", namespace="one"))

    assert figures_of(made.tree(""), "a").max == {CHIP: 5}


def test_a_circle_changes_nothing() -> None:
    """The quota that would close it stays where it was."""
    made = trees(has_trees=True)
    made.put(quota("a", most={CHIP: 4}))
    made.put(quota("b", "a", most={CHIP: 4}))
    with pytest.raises(InputError, match="nor a descendant of it"):
        made.put(quota("a", "b", most={CHIP: 4}))
    with pytest.raises(InputError, match="nor a descendant of it"):
        made.put(quota("a", "a", most={CHIP: 4}, tree="t"))

    assert made.tree_of("b").path("b") == ("b", "a")
    assert made.tree_ids == [""]


NAMES = ("a", "b", "c", "d")
small = st.integers(0, 9)


@st.composite
def quotas(draw: st.DrawFn) -> ElasticQuota:
    """Return a quota whose parent comes before it by name, so that there is no circle."""
    name = draw(st.sampled_from(NAMES))
    return quota(
        name,
        draw(st.sampled_from(("", *NAMES[: NAMES.index(name)]))),
        namespace=name,
        most={CHIP: draw(small)},
        bound=draw(st.sampled_from(((), ("a",), ("e", "b")))),
        tree=draw(st.sampled_from(("", "t"))),
        total=draw(st.sampled_from((None, None, {CHIP: 20}))),
    )


@st.composite
def quota_pods(draw: st.DrawFn) -> QuotaPod:
    key = f"{draw(st.sampled_from((*NAMES, 'e')))}/{draw(st.integers(0, 2))}"
    return pod(key, label=draw(st.sampled_from(("", "", *NAMES))), chip=draw(small))


steps = st.one_of(
    st.tuples(st.just("put"), quotas()),
    st.tuples(st.just("remove"), quotas()),
    st.tuples(st.just("put_pod"), quota_pods()),
    st.tuples(st.sampled_from(("remove_pod", "assign", "assign", "unassign")), st.integers(0, 99)),
)


class History:
    """Quotas and pods that exist after a sequence of events."""

    def __init__(self) -> None:
        self.quotas: dict[str, ElasticQuota] = {}
        self.pods: dict[str, QuotaPod] = {}
        self.assigned: set[str] = set()

    def follow(self, made: QuotaTrees, operation: str, subject: Any) -> None:
        if isinstance(subject, ElasticQuota):
            getattr(made, operation)(subject)
            self.quotas.pop(subject.metadata.name, None)
            if operation == "put":
                self.quotas[subject.metadata.name] = subject
        elif operation == "put_pod":
            made.put_pod(subject)
            self.pods[subject.key] = subject
        elif self.pods:
            key = sorted(self.pods)[subject % len(self.pods)]
            getattr(made, operation)(key)
            (self.assigned.add if operation == "assign" else self.assigned.discard)(key)
            if operation == "remove_pod":
                del self.pods[key]

    def build(self, rebuilt: QuotaTrees) -> None:
        for key in sorted(self.pods):
            rebuilt.put_pod(self.pods[key])
            if key in self.assigned:
                rebuilt.assign(key)
        for name in sorted(self.quotas):
            rebuilt.put(self.quotas[name])


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(25))
@given(st.lists(steps, min_size=5, max_size=25), st.booleans(), st.booleans())
def test_the_order_of_events_does_not_matter(
    history: list[tuple[str, Any]], has_trees: bool, has_default_quota: bool
) -> None:
    """As if all quotas and pods that are there now were added in order of name, pods first."""
    rules = {"has_trees": has_trees, "has_default_quota": has_default_quota}
    made, seen = trees(**rules), History()
    for operation, subject in history:
        seen.follow(made, operation, subject)
    made.set_total({CHIP: 50})
    rebuilt = trees(**rules)
    rebuilt.set_total({CHIP: 50})
    seen.build(rebuilt)

    assert sorted(made.tree_ids) == sorted(rebuilt.tree_ids)
    assert sorted(made.names) == sorted(rebuilt.names)
    assert {key: made.quota_of(key) for key in seen.pods} == {
        key: rebuilt.quota_of(key) for key in seen.pods
    }
    for tree_id in made.tree_ids:
        there, expected = made.tree(tree_id), rebuilt.tree(tree_id)
        for name in (ROOT_QUOTA, *there.names):
            assert figures_of(there, name) == figures_of(expected, name)
