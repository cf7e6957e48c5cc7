"""The same cluster with something changed: what would go elsewhere, start, or start no more.

Two schedulers run to a fixed point on copies, one of the cluster as it is, one with the changes.
Nothing is written anywhere.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.explain import Forecast
from koordinator.simulator import ScheduleResult, schedule
from koordinator.simulator.explanations import explain_pods

MOST_DIFFERENCES = 500


class ChangedOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that fares otherwise; an empty node is none."""

    pod: str
    before: str
    after: str
    why: str = ""


class WhatIfAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would be different; counts are of pods that the schedulers decide about."""

    placed_before: int
    placed_after: int
    waiting_before: int
    waiting_after: int
    evicted_after: int
    differences: list[ChangedOutcome]
    differ: int  # all of them, also those beyond ``MOST_DIFFERENCES``


def changed_objects(
    objects: Sequence[KubeObject], given: Iterable[KubeObject], removed: Sequence[str]
) -> list[KubeObject]:
    """Return the objects with those given in place of their namesakes, and without some.

    ``removed`` are ``kind/name`` or ``kind/namespace/name``, the kind in lower case.
    Raises InputError for one that isn't there.
    """
    replaced = {(type(obj), obj.key): obj for obj in given}
    gone = {name.strip().lower() for name in removed if name.strip()}
    left: list[KubeObject] = []
    found: set[str] = set()
    for obj in objects:
        name = f"{obj.KIND}/{obj.key}".lower()
        if name in gone:
            found.add(name)
        else:
            left.append(replaced.pop((type(obj), obj.key), obj))
    if missing := sorted(gone - found):
        accepted = "kind/name or kind/namespace/name of what there is"
        raise InputError(f"found {missing[0]!r}; accepted is {accepted}", source="remove")
    added = list(replaced.values())
    others = [obj for obj in added if not isinstance(obj, Pod)]
    return [*others, *left, *(obj for obj in added if isinstance(obj, Pod))]


class QuotaGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So much more of a resource for a quota, a Kubernetes quantity: guaranteed, and at most."""

    quota: str
    resource: str
    amount: str


def with_grants(objects: Sequence[KubeObject], grants: Iterable[QuotaGrant]) -> list[KubeObject]:
    """Return the objects with larger quotas.  Raises InputError for a quota that isn't there."""
    found = list(objects)
    for grant in grants:
        try:
            more = Quantity.parse(grant.amount)
        except ValueError as error:
            raise InputError(f"found {grant.amount!r}; {error}", source="amount") from None
        quotas = [obj for obj in found if isinstance(obj, ElasticQuota)]
        if grant.quota not in {obj.metadata.name for obj in quotas}:
            known = ", ".join(sorted(obj.metadata.name for obj in quotas)) or "none: there are none"
            raise InputError(f"found {grant.quota!r}; accepted is one of {known}", source="quota")
        found = [
            _granted(obj, grant.resource, more)
            if isinstance(obj, ElasticQuota) and obj.metadata.name == grant.quota
            else obj
            for obj in found
        ]
    return found


def _granted(quota: ElasticQuota, resource: str, more: Quantity) -> ElasticQuota:
    """Return a quota with more; where it has no limit of the resource it goes on having none."""
    spec = quota.spec
    raised = {
        "min": {**spec.min, resource: spec.min.get(resource, Quantity.from_int(0)) + more},
        "max": {
            name: amount + more if name == resource else amount for name, amount in spec.max.items()
        },
    }
    return replace(quota, spec=replace(spec, **raised))


def expected_start(
    objects: Sequence[KubeObject],
    key: str,
    configuration: KubeSchedulerConfiguration,
    now_s: float,
) -> Forecast:
    """Return when a waiting pod would start if nothing else came, on a copy run forward.

    Pods leave when they say so: a deadline, or a deletion under way; where that does not help, or
    nobody says so, the answer is why that is not known.  Raises InputError for a pod not there.
    """
    (told,) = explain_pods(objects, [key], configuration, now_s=now_s)
    if told.forecast is not None:
        return told.forecast
    if told.node:
        return Forecast(node=told.node, why="it has a node, or gets one at once")
    return Forecast(why="it is in no queue, so no event lets it start by itself")


def what_if(
    objects: Sequence[KubeObject],
    changed: Sequence[KubeObject],
    before: KubeSchedulerConfiguration,
    after: KubeSchedulerConfiguration,
    now_s: float,
) -> WhatIfAnswer:
    """Schedule both worlds and return what is different.

    Raises InputError for a configuration or an object that can't be meant.
    """
    first = schedule(objects, before, now_s=now_s)
    second = schedule(changed, after, now_s=now_s)
    old, new = _nodes(objects, first), _nodes(changed, second)
    why = {one.pod: one.message for one in second.unschedulable}
    why |= {one.pod: f"makes room for {one.by}" for one in second.evicted}
    differing = [
        ChangedOutcome(pod, old.get(pod, ""), new.get(pod, ""), why.get(pod, ""))
        for pod in sorted(old.keys() | new.keys())
        if (pod in old) != (pod in new) or old.get(pod, "") != new.get(pod, "")
    ]
    return WhatIfAnswer(
        placed_before=len(first.placements),
        placed_after=len(second.placements),
        waiting_before=len(first.unschedulable),
        waiting_after=len(second.unschedulable),
        evicted_after=len(second.evicted),
        differences=differing[:MOST_DIFFERENCES],
        differ=len(differing),
    )


def _nodes(objects: Iterable[KubeObject], result: ScheduleResult) -> dict[str, str]:
    """Return the node of each pod in the end, empty for those that wait or had to go."""
    nodes = {obj.key: obj.spec.node_name for obj in objects if isinstance(obj, Pod)}
    nodes |= {one.pod: one.node for one in result.placements}
    return nodes | {one.pod: "" for one in result.evicted}
