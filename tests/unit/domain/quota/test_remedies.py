"""Remedies of a full quota make room in it."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.quota.quotas import pod

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.domain.quota import AdmissionRules, QuotaSpec, QuotaTree, what_helps, why_not

CORES = st.integers(0, 8)
RULES = (AdmissionRules(), AdmissionRules(checks_parents=True), AdmissionRules(uses_runtime=False))


def built(total: int, specs: dict[str, QuotaSpec], uses: dict[str, int], asked: int) -> QuotaTree:
    """Return a tree in which quotas use so many cores, and a pod of quota ``a`` requests some."""
    tree = QuotaTree()
    tree.set_total({"cpu": 1_000 * total})
    for spec in specs.values():
        tree.put(spec)
    for name, cores in uses.items():
        if cores:
            tree.put_pod(name, pod(f"ns/runs-{name}", cpu=1_000 * cores))
            tree.assign(name, f"ns/runs-{name}")
    tree.put_pod("a", pod("ns/p", cpu=1_000 * asked))
    return tree


def spec(name: str, parent: str, least: int, more: int) -> QuotaSpec:
    most = {"cpu": 1_000 * (least + more)}
    return QuotaSpec(name=name, parent=parent, max=most, min={"cpu": 1_000 * least}, weight=most)


@given(
    total=st.integers(1, 20),
    tops=st.tuples(CORES, CORES),
    leaves=st.tuples(CORES, CORES, CORES, CORES),
    uses=st.tuples(CORES, CORES),
    asked=st.integers(1, 12),
    rules=st.sampled_from(RULES),
)
def test_what_is_enough_lets_the_pod_in(
    *,
    total: int,
    tops: tuple[int, int],
    leaves: tuple[int, int, int, int],
    uses: tuple[int, int],
    asked: int,
    rules: AdmissionRules,
) -> None:
    """Each remedy works in another tree; and trying it has left the first one as it was."""
    specs = {
        "top": spec("top", ROOT_QUOTA, *tops),
        "a": spec("a", "top", *leaves[:2]),
        "b": spec("b", "top", *leaves[2:]),
    }
    used = dict(zip("ab", uses, strict=True))
    tree, wanted = built(total, specs, used, asked), pod("ns/p", cpu=1_000 * asked)
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
    assert not why_not(built(total, specs, used, asked), "a", wanted, rules), text


def raised(one: QuotaSpec, what: str, more: int) -> QuotaSpec:
    if what == "min":
        return replace(one, min={"cpu": one.min["cpu"] + more})
    most = {"cpu": one.max["cpu"] + more}
    return replace(one, max=most, weight=most)


def test_a_raised_maximum_is_not_enough_where_others_use_the_rest() -> None:
    """The quota above has to have more, too; pods that don't run can't end."""
    specs = {
        "top": spec("top", ROOT_QUOTA, 4, 0),
        "a": spec("a", "top", 2, 6),
        "b": spec("b", "top", 2, 6),
    }
    tree = built(32, specs, {"b": 2}, 9)

    text, helps = what_helps(tree, "a", pod("ns/p", cpu=9_000), AdmissionRules())

    assert text == (
        "raise the max of quota a by cpu:1; and quota a may use less than its max now, since "
        "others use the rest: raise the max of quota top by cpu:7, or wait until the others give "
        "back"
    )
    assert helps


def test_what_no_quota_above_could_give_is_not_enough() -> None:
    """Minimums may not be more together than that of their parent."""
    specs = {"top": spec("top", ROOT_QUOTA, 4, 0), "a": spec("a", "top", 2, 6)}
    tree = built(4, specs | {"b": spec("b", "top", 2, 6)}, {"b": 2}, 3)
    text, helps = what_helps(tree, "a", pod("ns/p", cpu=3_000), AdmissionRules())

    assert text.endswith("since others use the rest: wait until the others give back")
    assert not helps
