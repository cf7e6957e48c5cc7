"""The same cluster with something changed: what would go elsewhere, start, or start no more.

Two schedulers run to a fixed point on copies, one of the cluster as it is, one with the changes.
Nothing is written anywhere.
"""

from collections.abc import Iterable, Sequence

import msgspec

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError
from koordinator.simulator import ScheduleResult, schedule

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
