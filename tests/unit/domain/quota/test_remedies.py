"""Remedies of a full quota make room in it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.quota.quotas import CHIP, pod

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.domain.quota import AdmissionRules, QuotaSpec, QuotaTree, what_helps, why_not

CORES = st.integers(0, 8)
RULES = (AdmissionRules(), AdmissionRules(checks_parents=True), AdmissionRules(uses_runtime=False))


def built(total: int, specs: dict[str, QuotaSpec], uses: dict[str, int], cpus: int) -> QuotaTree:
    """Return a tree in which quotas use so many cores, and a pod of quota ``a`` requests some."""
    tree = QuotaTree()
    tree.set_total({"cpu": 1_000 * total})
    for spec in specs.values():
        tree.put(spec)
    for name, cores in uses.items():
        if cores:
            tree.put_pod(name, pod(f"ns/runs-{name}", cpu=1_000 * cores))
            tree.assign(name, f"ns/runs-{name}")
    tree.put_pod("a", pod("ns/p", cpu=1_000 * cpus))
    return tree


def spec(name: str, parent: str, least: int, more: int) -> QuotaSpec:
    most = {"cpu": 1_000 * (least + more)}
    return QuotaSpec(name=name, parent=parent, max=most, min={"cpu": 1_000 * least}, weight=most)


@given(
    total=st.integers(1, 20),
    tops=st.tuples(CORES, CORES),
    leaves=st.tuples(CORES, CORES, CORES, CORES),
    uses=st.tuples(CORES, CORES),
    cpus=st.integers(1, 12),
    lends=st.booleans(),
    rules=st.sampled_from(RULES),
)
def test_sufficient_remedy_admits_the_pod(
    *,
    total: int,
    tops: tuple[int, int],
    leaves: tuple[int, int, int, int],
    uses: tuple[int, int],
    cpus: int,
    lends: bool,
    rules: AdmissionRules,
) -> None:
    """Each remedy works in another tree; and trying it has left the first one as it was."""
    specs = {
        "top": spec("top", ROOT_QUOTA, *tops),
        "a": spec("a", "top", *leaves[:2]),
        "b": replace(spec("b", "top", *leaves[2:]), lends=lends),
    }
    used = dict(zip("ab", uses, strict=True))
    tree, wanted = built(total, specs, used, cpus), pod("ns/p", cpu=1_000 * cpus)
    refusal = why_not(tree, "a", wanted, rules)
    text, helps = what_helps(tree, "a", wanted, rules)

    assert bool(text) is bool(refusal)
    assert why_not(tree, "a", wanted, rules) == refusal
    assert {name: tree.node(name).spec for name in specs} == specs
    if not (text and helps):
        return
    for what, names, amount in re.findall(r"raise (?:the|its) (max|min)(.*?) by cpu:(\d+m?)", text):
        more = int(amount[:-1]) if amount.endswith("m") else 1_000 * int(amount)
        for name in names.removeprefix(" of quota ").split(" and ") if names else ("a",):
            specs[name] = raised(specs[name], what, more)
    for amount in re.findall(r"add nodes with cpu:(\d+)", text):
        total += int(amount)
    for names in re.findall(r"allow-lent-resource of (.+?) to true", text):
        for name in names.split(" and "):
            specs[name] = replace(specs[name], lends=True)
    assert not why_not(built(total, specs, used, cpus), "a", wanted, rules), text


def raised(one: QuotaSpec, what: str, more: int) -> QuotaSpec:
    if what == "min":
        return replace(one, min={"cpu": one.min["cpu"] + more})
    most = {"cpu": one.max["cpu"] + more}
    return replace(one, max=most, weight=most)


def test_a_raised_maximum_is_not_enough_where_the_quota_above_limits_it() -> None:
    """The quota above has to have more, too; waiting for others would not help."""
    specs = {
        "top": spec("top", ROOT_QUOTA, 4, 0),
        "a": spec("a", "top", 2, 6),
        "b": spec("b", "top", 2, 6),
    }
    tree = built(32, specs, {"b": 2}, 9)

    text, helps = what_helps(tree, "a", pod("ns/p", cpu=9_000), AdmissionRules())

    assert text == (
        "raise the max of quota a by cpu:1; and quota a may use less than its max now, since "
        "top limits it: raise the max of quota top by cpu:7"
    )
    assert helps


def test_what_no_quota_above_could_give_is_not_enough() -> None:
    """Minimums may not be more together than that of their parent."""
    specs = {"top": spec("top", ROOT_QUOTA, 4, 0), "a": spec("a", "top", 2, 6)}
    tree = built(4, specs | {"b": spec("b", "top", 2, 6)}, {"b": 2}, 3)
    text, helps = what_helps(tree, "a", pod("ns/p", cpu=3_000), AdmissionRules())

    assert text.endswith("since others use the rest: wait until the others give back")
    assert not helps


def test_cluster_that_is_too_small_is_not_blamed_on_other_quotas() -> None:
    """No other quota uses the rest: nodes must be added, and that many are enough."""
    tree = built(4, {"a": spec("a", ROOT_QUOTA, 4, 4)}, {}, 6)

    assert what_helps(tree, "a", pod("ns/p", cpu=6_000), AdmissionRules()) == (
        (
            "quota a may use less than its max now, since the nodes of its tree have cpu:4 in "
            "all: add nodes with cpu:2"
        ),
        True,
    )
    assert tree.total == {"cpu": 4_000}


def test_resource_of_no_node_is_not_blamed_on_other_quotas() -> None:
    """The total of a resource that no node has is 0."""
    specs = {"a": replace(spec("a", ROOT_QUOTA, 4, 4), max={"cpu": 8_000, CHIP: 4})}
    specs["a"] = replace(specs["a"], weight=specs["a"].max)
    tree, wanted = built(16, specs, {}, 1), pod("ns/p", cpu=1_000, chip=2)
    tree.put_pod("a", wanted)

    text, helps = what_helps(tree, "a", wanted, AdmissionRules())

    assert text.endswith(f"have {CHIP}:0 in all: add nodes with {CHIP}:2")
    assert helps


def test_quota_that_does_not_lend_is_named() -> None:
    """Waiting does not help, since that quota uses nothing."""
    specs = {
        "top": spec("top", ROOT_QUOTA, 4, 0),
        "a": spec("a", "top", 2, 6),
        "b": replace(spec("b", "top", 2, 6), lends=False),
    }
    tree = built(4, specs, {}, 3)

    text, helps = what_helps(tree, "a", pod("ns/p", cpu=3_000), AdmissionRules())

    assert text == (
        "quota a may use less than its max now, since quota b keeps what it does not use: set the "
        "label quota.scheduling.koordinator.sh/allow-lent-resource of b to true"
    )
    assert helps


def test_quota_without_weight_is_named() -> None:
    """A quota without weight gets its minimum alone, whatever other quotas do."""
    own = replace(spec("a", ROOT_QUOTA, 2, 6), weight={CHIP: 1})
    text, helps = what_helps(
        built(16, {"a": own}, {}, 4), "a", pod("ns/p", cpu=4_000), AdmissionRules()
    )

    assert text == (
        "quota a gets only its min of cpu, since it has no weight for that: add cpu:8 to its "
        "annotation quota.scheduling.koordinator.sh/shared-weight"
    )
    assert helps


def test_only_quotas_that_keep_something_are_named() -> None:
    """A quota that uses its minimum, or has none of the resource, has nothing to lend."""
    siblings = [
        replace(spec(name, "top", least, 8 - least), lends=False)
        for name, least in (("none", 0), ("uses", 2), ("keeps", 2), ("other", 0))
    ]
    siblings[3] = replace(siblings[3], min={CHIP: 4}, max={CHIP: 8})
    specs = {one.name: one for one in (spec("top", ROOT_QUOTA, 8, 0), *siblings)}
    tree = built(8, specs | {"a": spec("a", "top", 2, 6)}, {"uses": 2}, 6)

    text, helps = what_helps(tree, "a", pod("ns/p", cpu=6_000), AdmissionRules())

    assert "since quota keeps keeps what it does not use: set the label" in text
    assert text.endswith("allow-lent-resource of keeps to true")
    assert helps


@pytest.mark.parametrize(("cpus", "helps"), [(20, True), (30, False)])
def test_few_of_many_quotas_are_named(cpus: int, *, helps: bool) -> None:
    """The quotas that keep the most are named, and none if these few are not enough."""
    small = [replace(spec(f"s{n:02}", "top", 1, 59), lends=False) for n in range(40)]
    large = [replace(spec(f"t{n}", "top", 4, 56), lends=False) for n in range(5)]
    top, own = spec("top", ROOT_QUOTA, 60, 0), spec("a", "top", 0, 60)
    specs = {one.name: one for one in (top, *small, *large, own)}
    wanted = pod("ns/p", cpu=1_000 * cpus)

    text, is_enough = what_helps(built(60, specs, {}, cpus), "a", wanted, AdmissionRules())

    assert is_enough is helps
    assert ("of t0 and t1 and t2 and t3 and t4 to true" in text) is helps
    assert "s00" not in text
