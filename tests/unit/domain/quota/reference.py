"""The rules of quotas, computed from scratch in the plainest way: what the tree is tested against.

One resource at a time, fractions instead of integer arithmetic, nothing kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.domain.quota import QuotaPod, QuotaSpec


@dataclass(frozen=True)
class Child:
    """Request, minimum and weight of a quota in the sharing of one resource."""

    name: str
    request: int
    least: int
    weight: int
    lends: bool = True
    guaranteed: int = 0


def shared(children: Iterable[Child], total: int | None, *, scales: bool) -> dict[str, int]:
    """Return what each may use."""
    children = sorted(children, key=lambda child: child.name)
    minimums = {child.name: child.least for child in children}
    together = sum(minimums.values())
    if scales and total is not None and together > total:
        minimums = {n: floor(Fraction(least * total, together)) for n, least in minimums.items()}
    out, hungry = {}, []
    for child in children:
        right = max(minimums[child.name], child.guaranteed)
        if child.request > right:
            hungry.append(child)
            out[child.name] = right
        else:
            out[child.name] = child.request if child.lends else right
    rest = (total or 0) - sum(out.values())
    while rest > 0 and (weights := sum(child.weight for child in hungry)) > 0:
        exact = {child.name: Fraction(child.weight * rest, weights) for child in hungry}
        grants = {name: floor(share) for name, share in exact.items()}
        owed = sorted(exact, key=lambda name: (grants[name] - exact[name], name))
        for name in owed[: rest - sum(grants.values())]:
            grants[name] += 1
        rest = 0
        for child in hungry:
            wanted = child.request - out[child.name]
            out[child.name] += min(grants[child.name], wanted)
            rest += max(grants[child.name] - wanted, 0)
        hungry = [child for child in hungry if out[child.name] < child.request]
    return out


@dataclass
class Reference:
    """Quotas of one tree, and pods: (quota, pod, whether it is assigned)."""

    specs: Mapping[str, QuotaSpec]
    pods: Iterable[tuple[str, QuotaPod, bool]] = ()
    total: Mapping[str, int] = field(default_factory=dict)
    unshared: Mapping[str, int] = field(default_factory=dict)  # used beside the tree
    scales: bool = True
    guarantees: bool = False

    def children(self, name: str) -> list[str]:
        return sorted(spec.name for spec in self.specs.values() if spec.parent == name)

    def of_pods(
        self, name: str, resource: str, *, assigned: bool = False, protected: bool = False
    ) -> int:
        """Return what pods of the quota itself request, or some of them."""
        if resource not in self.specs[name].max:
            return 0
        return sum(
            pod.requests.get(resource, 0)
            for quota, pod, is_assigned in self.pods
            if quota == name
            and (is_assigned or not assigned)
            and not (protected and pod.is_preemptible)
        )

    def used(self, name: str, resource: str, *, protected: bool = False) -> int:
        below = sum(self.used(c, resource, protected=protected) for c in self.children(name))
        return below + self.of_pods(name, resource, assigned=True, protected=protected)

    def protected_request(self, name: str, resource: str) -> int:
        below = sum(self.protected_request(child, resource) for child in self.children(name))
        return below + self.of_pods(name, resource, protected=True)

    def child_request(self, name: str, resource: str) -> int:
        below = sum(self.limited_request(child, resource) for child in self.children(name))
        return below + self.of_pods(name, resource)

    def request(self, name: str, resource: str) -> int:
        spec, amount = self.specs[name], self.child_request(name, resource)
        lends = spec.lends and not self.guarantees
        return amount if lends else max(amount, spec.min.get(resource, 0))

    def limited_request(self, name: str, resource: str) -> int:
        amount = self.request(name, resource)
        return min(amount, self.specs[name].max.get(resource, amount))

    def allocated(self, name: str, resource: str) -> int:
        if not self.guarantees:
            return 0
        below = sum(self.guaranteed(child, resource) for child in self.children(name))
        return below + self.of_pods(name, resource, assigned=True)

    def guaranteed(self, name: str, resource: str) -> int:
        if not self.guarantees:
            return 0
        return max(self.allocated(name, resource), self.specs[name].min.get(resource, 0))

    def has(self, name: str, resource: str) -> int | None:
        """Return what children of a quota share; None if it isn't known."""
        if name == ROOT_QUOTA:
            if resource not in self.total:
                return None
            return max(self.total[resource] - self.unshared.get(resource, 0), 0)
        if name not in self.specs:
            return None
        if resource not in self.specs[name].max:
            return 1 << 60
        return self.runtime(name, resource)

    def runtime(self, name: str, resource: str) -> int:
        parent = self.specs[name].parent
        children = [
            Child(
                name=child,
                request=self.limited_request(child, resource),
                least=self.specs[child].min.get(resource, 0),
                weight=self.specs[child].weight.get(resource, 0),
                lends=self.specs[child].lends and not self.guarantees,
                guaranteed=self.guaranteed(child, resource),
            )
            for child in self.children(parent)
            if resource in self.specs[child].max
        ]
        return shared(children, self.has(parent, resource), scales=self.scales)[name]
