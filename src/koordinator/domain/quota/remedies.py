"""Quota changes that would admit a rejected pod."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from koordinator.api.annotations.quota import SHARED_WEIGHT
from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.api.labels import QUOTA_ALLOW_LENT
from koordinator.domain.amounts import Amounts, add, exceeded, named_by, plus, to_text
from koordinator.domain.quota.admission import AdmissionRules, limit_of, why_not
from koordinator.domain.quota.spec import QuotaPod, QuotaSpec
from koordinator.domain.quota.tree import QuotaNode, QuotaTree

MOST_LENDING = 5  # quotas that are asked to lend what they do not use


def what_helps(
    tree: QuotaTree,
    name: str,
    pod: QuotaPod,
    rules: AdmissionRules,
    assumed: Iterable[Amounts] = (),
) -> tuple[str, bool]:
    """Return the changes that would admit the pod, and whether they suffice.

    ``assumed`` are the requests of pods of the quota that do not run yet and thus cannot end; such
    pods of other quotas below the same parents count as if they ran.

    The text is empty if the pod is admitted. The changes are tried on the tree and undone. A shared
    limit may have to be raised by more than the current shortfall; then the changes do not suffice.
    A change that the webhook would reject is not proposed.
    """
    dry_run = _DryRun(tree, rules, assumed)
    try:
        steps = [*dry_run.steps(name, pod)]
        return "; and ".join(steps), not why_not(tree, name, pod, rules)
    finally:
        dry_run.undo()


@contextmanager
def raised_limits(
    tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules
) -> Iterator[str]:
    """Raise limits that are too small for a pod within the context; yield the description."""
    dry_run = _DryRun(tree, rules)
    try:
        yield "; and ".join(dry_run.raised_limits(name, pod))
    finally:
        dry_run.undo()


class _DryRun:
    def __init__(
        self, tree: QuotaTree, rules: AdmissionRules, assumed: Iterable[Amounts] = ()
    ) -> None:
        self._tree, self._rules = tree, rules
        self._assumed: dict[str, int] = {}
        for requests in assumed:
            add(self._assumed, requests)
        self._before: list[QuotaSpec] = []  # original specs of changed quotas, in order
        self._total = tree.total

    def undo(self) -> None:
        self._undo_to(0)
        self._tree.set_total(self._total)

    def _undo_to(self, count: int) -> None:
        """Undo all changes but the first ``count``."""
        for spec in reversed(self._before[count:]):
            self._tree.put(spec)
        del self._before[count:]

    def raised_limits(self, name: str, pod: QuotaPod) -> list[str]:
        """Raise every maximum that is too small for the pod, and the minimum; return the steps."""
        steps = [s for level in self._levels(name, pod) for s in self._raised_max(*level)]
        short = self._short_min(name, pod)
        raising = self._raised_min(name, short) if short else ""
        return [*steps, raising] if raising else steps

    def steps(self, name: str, pod: QuotaPod) -> Iterator[str]:
        """Yield the steps; each is applied when the next one is requested."""
        levels = self._levels(name, pod)
        for level, wanted in levels:
            yield from self._raised_max(level, wanted)
        short = self._short_min(name, pod)
        if short:
            raising = self._raised_min(name, short)
            either = f"{raising}, or " if raising else ""
            yield f"{either}let the pod be preemptible: such pods are not held to the min"
        for level, wanted in levels:
            yield from self._raised_share(level, wanted)

    def _short_min(self, name: str, pod: QuotaPod) -> Amounts:
        """Return the pod's shortage in the minimum; nothing for a preemptible pod."""
        if pod.is_preemptible:
            return {}
        node = self._tree.node(name)
        return _short(plus(node.non_preemptible_used, node.counted(pod)), node.min)

    def _levels(self, name: str, pod: QuotaPod) -> Sequence[tuple[str, Amounts]]:
        """Return the quotas that limit the pod, with the usage each would have."""
        tree, node = self._tree, self._tree.node(name)
        request = node.counted(pod)
        levels = [(name, plus(node.used, request))]
        for ancestor in tree.path(name)[1:] if self._rules.checks_parents else ():
            wanted = named_by(plus(tree.node(ancestor).used, request), request)
            levels.append((ancestor, wanted))
        return levels

    def _raised_max(self, name: str, wanted: Amounts) -> Iterator[str]:
        short = _short(wanted, self._tree.node(name).max)
        if short:
            ends = self._ends(name, _short(wanted, limit_of(self._tree, name, self._rules)))
            self._raise_max(name, short)
            yield f"raise the max of quota {name} by {to_text(short)}{ends}"

    def _raised_share(self, name: str, wanted: Amounts) -> Iterator[str]:
        """Raise the share of a quota by more nodes, a larger maximum above it or a larger minimum.

        Where none of these helps, other quotas must give back, or lend what they do not use.
        """
        yield from self._raised_total(name, wanted)
        yield from self._given_weight(name, wanted)
        short = _short(wanted, limit_of(self._tree, name, self._rules))
        if not short:
            return
        ends = self._ends(name, short)
        idle = self._tree.without_requests(name)
        waiting = f"{ends} or" if ends else ", or wait until"
        waiting += " the others give back"
        is_limited_above = bool(_short(wanted, limit_of(idle, name, self._rules)))
        if is_limited_above:
            waiting = ends
        why = f"quota {name} may use less than its max now, since others use the rest"
        above = self._tree.path(name)[1:]
        tried = len(self._before)
        for count, ancestor in enumerate(above, start=1):
            self._raise_max(ancestor, short)
            if not _short(wanted, limit_of(self._tree, name, self._rules)):
                quotas = " and ".join(above[:count])
                if is_limited_above:
                    limit = "limits" if count == 1 else "limit"
                    why = f"quota {name} may use less than its max now, since {quotas} {limit} it"
                yield f"{why}: raise the max of quota {quotas} by {to_text(short)}{waiting}"
                return
        self._undo_to(tried)
        raising = self._raised_min(name, short)
        if raising and not _short(wanted, limit_of(self._tree, name, self._rules)):
            yield f"{why}: raise its min by {to_text(short)}{waiting}"
            return
        self._undo_to(tried)
        lending = self._lent(name, wanted)
        if lending:
            keep = "keeps" if len(lending) == 1 else "keep"
            yield (
                f"quota {name} may use less than its max now, since quota "
                f"{' and '.join(lending)} {keep} what it does not use: set the label "
                f"{QUOTA_ALLOW_LENT} of {' and '.join(lending)} to true{waiting}"
            )
        elif waiting:
            yield f"{why}: {waiting.removeprefix(', or ').removeprefix(', ')}"
        else:
            yield f"{why.removesuffix('use the rest')}are guaranteed the rest"

    def _raised_total(self, name: str, wanted: Amounts) -> Iterator[str]:
        """Raise the total of the tree if it is smaller than the quota's usage with the pod."""
        total, limit = self._tree.total, limit_of(self._tree, name, self._rules)
        short_totals = {resource: total.get(resource, 0) for resource in _short(wanted, limit)}
        added = _short(wanted, short_totals)
        if not added:
            return
        self._tree.set_total(plus(total, added))
        more = _short(named_by(wanted, added), limit_of(self._tree, name, self._rules))
        if more:  # others use a part
            self._tree.set_total(plus(total, plus(added, more)))
            if not _short(named_by(wanted, added), limit_of(self._tree, name, self._rules)):
                added = plus(added, more)
            else:
                self._tree.set_total(plus(total, added))
        yield (
            f"quota {name} may use less than its max now, since the nodes of its tree have "
            f"{to_text(named_by(short_totals, added))} in all: add nodes with {to_text(added)}"
        )

    def _given_weight(self, name: str, wanted: Amounts) -> Iterator[str]:
        """Give the quota a weight in resources for which it gets only its minimum."""
        spec = self._tree.node(name).spec
        short = _short(wanted, limit_of(self._tree, name, self._rules))
        missing = [one for one in short if spec is not None and not spec.weight.get(one)]
        if not missing:
            return
        tried, spec = len(self._before), self._spec(name)
        added = {resource: spec.max.get(resource, 1) for resource in missing}
        self._tree.put(replace(spec, weight={**spec.weight, **added}))
        left = _short(wanted, limit_of(self._tree, name, self._rules))
        if any(left.get(resource) == short[resource] for resource in missing):
            self._undo_to(tried)
            return
        yield (
            f"quota {name} gets only its min of {' and '.join(missing)}, since it has no weight "
            f"for that: add {to_text(added)} to its annotation {SHARED_WEIGHT.key}"
        )

    def _lent(self, name: str, wanted: Amounts) -> list[str]:
        """Return the siblings of the ancestors that must lend their unused minimum.

        Those that keep the most are tried first; none if that many do not suffice.
        """
        tried, changed = len(self._before), []
        way = self._tree.path(name)
        short = _short(wanted, limit_of(self._tree, name, self._rules))

        def kept(one: QuotaNode) -> int:
            amounts = (one.min.get(r, 0) - one.child_request.get(r, 0) for r in short)
            return sum(max(amount, 0) for amount in amounts)

        beside = [
            child
            for parent in (*way[1:], ROOT_QUOTA)
            for child in self._tree.node(parent).children.values()
            if child.spec is not None and not child.spec.lends and child.name not in way
        ]
        keeping = [child for child in beside if kept(child)]
        for child in sorted(keeping, key=lambda one: (-kept(one), one.name))[:MOST_LENDING]:
            self._tree.put(replace(self._spec(child.name), lends=True))
            changed.append(child.name)
            if not _short(wanted, limit_of(self._tree, name, self._rules)):
                return changed
        self._undo_to(tried)
        return []

    def _ends(self, name: str, short: Amounts) -> str:
        """Return the alternative of waiting for pods to end, if the quota uses that much."""
        used = self._tree.node(name).used
        running = {each: used.get(each, 0) - self._assumed.get(each, 0) for each in short}
        if exceeded(short, running):
            return ""
        return f", or wait until pods of quota {name} that use {to_text(short)} end"

    def _raise_max(self, name: str, more: Amounts) -> None:
        """Raise a maximum, and the weight if it defaults to the maximum."""
        spec = self._spec(name)
        most = _raised(spec.max, more)
        weight = most if spec.weight == spec.max else spec.weight
        self._tree.put(replace(spec, max=most, weight=weight))

    def _raised_min(self, name: str, more: Amounts) -> str:
        """Raise a minimum and return the step; empty, without a change, if it would be rejected.

        A minimum is at most the maximum, and the minimums of siblings sum up to at most the
        parent's.
        """
        tried, spec = len(self._before), self._spec(name)
        least = _raised(spec.min, more)
        self._tree.put(replace(spec, min=least))
        above = self._tree.path(name)[1:]
        parent = self._tree.node(above[0]) if above else None
        taken = [child.min for child in parent.children.values()] if parent is not None else []
        if exceeded(least, spec.max) or (
            parent is not None
            and any(sum(m.get(r, 0) for m in taken) > parent.min.get(r, 0) for r in more)
        ):
            self._undo_to(tried)
            return ""
        return f"raise the min of quota {name} by {to_text(more)}"

    def _spec(self, name: str) -> QuotaSpec:
        """Return the spec of a quota and record it for undo."""
        spec = self._tree.node(name).spec
        assert spec is not None  # noqa: S101 -- it is on the path of a quota
        self._before.append(spec)
        return spec


def _raised(amounts: Amounts, more: Amounts) -> Amounts:
    return {**amounts, **{name: amounts.get(name, 0) + amount for name, amount in more.items()}}


def _short(wanted: Amounts, limit: Amounts) -> dict[str, int]:
    return {name: wanted[name] - limit[name] for name in exceeded(wanted, limit)}
