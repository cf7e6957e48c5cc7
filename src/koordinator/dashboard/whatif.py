"""Dry runs for the page: outcomes with given changes, and moves of a descheduler policy.

Two schedulers run to a fixed point on copies.  The cluster is not written to.
``koord descheduler plan`` shows the same plan; the dashboard cannot apply it.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.policy import PriorityClass
from koordinator.descheduler.configuration import (
    DeschedulerConfiguration,
    decode_descheduler_configuration,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.migration.workloads import WORKLOAD_KINDS
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.explanations import Forecast
from koordinator.scheduler.fork import FOLLOWED
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator import ScheduleResult, schedule
from koordinator.simulator.explanations import explain_pods
from koordinator.simulator.move_plans import plan_moves
from koordinator.simulator.page import ResultPage
from koordinator.simulator.plan_page import plan_page

_EXAMPLE = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
- name: koord-descheduler
  plugins:
    balance: {enabled: [{name: LowNodeLoad}, {name: GPUDefragmentation}]}
  pluginConfig:
  - name: LowNodeLoad
    args: {lowThresholds: {cpu: 45, memory: 55}, highThresholds: {cpu: 75, memory: 80}}
  - name: MigrationController
    args: {schedulerNames: %s}
"""
#: Kinds that a descheduler reads and a scheduler does not watch.
UNFOLLOWED: tuple[type[KubeObject], ...] = (
    PriorityClass,
    *(kind for kind in WORKLOAD_KINDS if kind not in FOLLOWED),
    PodMigrationJob,
)
MAX_DIFFERENCES = 500


class ChangedOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """A pod whose node differs; an empty name means no node."""

    pod: str
    before: str
    after: str
    why: str = ""


class WhatIfAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Differences between the outcomes; counts include the pods that the schedulers place."""

    placed_before: int
    placed_after: int
    waiting_before: int
    waiting_after: int
    evicted_after: int
    differences: list[ChangedOutcome]
    differ: int  # number of differences, also beyond ``MAX_DIFFERENCES``


def changed_objects(
    objects: Sequence[KubeObject], given: Iterable[KubeObject], removed: Sequence[str]
) -> list[KubeObject]:
    """Return the objects, with those given added or replaced and those named removed.

    ``removed`` are ``kind/name`` or ``kind/namespace/name``, in lower case.
    Raises InputError for a name without an object.
    """
    replaced = {(type(obj), obj.key): obj for obj in given}
    names = {name.strip().lower() for name in removed if name.strip()}
    kept: list[KubeObject] = []
    matched: set[str] = set()
    for obj in objects:
        name = f"{obj.KIND}/{obj.key}".lower()
        if name in names:
            matched.add(name)
        else:
            kept.append(replaced.pop((type(obj), obj.key), obj))
    if missing := sorted(names - matched):
        expected = "must be kind/name or kind/namespace/name of an existing object"
        raise InputError(f"{expected}, got {missing[0]!r}", source="remove")
    added = list(replaced.values())
    others = [obj for obj in added if not isinstance(obj, Pod)]
    return [*others, *kept, *(obj for obj in added if isinstance(obj, Pod))]


class QuotaGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Increase of a quota's min and max for one resource; ``amount`` is a Kubernetes quantity."""

    quota: str
    resource: str
    amount: str


def with_grants(objects: Sequence[KubeObject], grants: Iterable[QuotaGrant]) -> list[KubeObject]:
    """Return the objects with increased quotas.  Raises InputError for an unknown quota."""
    changed = list(objects)
    for grant in grants:
        try:
            more = Quantity.parse(grant.amount)
        except ValueError as error:
            raise InputError(f"{grant.amount!r}: {error}", source="amount") from None
        quotas = [obj for obj in changed if isinstance(obj, ElasticQuota)]
        if grant.quota not in {obj.metadata.name for obj in quotas}:
            names = ", ".join(sorted(obj.metadata.name for obj in quotas))
            known = f"must be one of {names}" if names else "the cluster has no quotas"
            raise InputError(f"unknown quota {grant.quota!r}; {known}", source="quota")
        changed = [
            _granted(obj, grant.resource, more)
            if isinstance(obj, ElasticQuota) and obj.metadata.name == grant.quota
            else obj
            for obj in changed
        ]
    return changed


def _granted(quota: ElasticQuota, resource: str, more: Quantity) -> ElasticQuota:
    """Return a quota with more of a resource; a resource without a max stays unlimited."""
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
    """Return the start time of a pending pod if no other pod arrives; simulated on a copy.

    Running pods end at their deadline or with a deletion in progress.  Where no such end makes the
    pod start, the forecast has the reason instead of a time.  Raises InputError for an unknown pod.
    """
    (explained,) = explain_pods(objects, [key], configuration, now_s=now_s)
    if explained.forecast is not None:
        return explained.forecast
    if explained.node:
        return Forecast(node=explained.node, why="it has a node, or gets one immediately")
    return Forecast(why="it is in no scheduling queue, so no event starts it")


def what_if(
    objects: Sequence[KubeObject],
    changed: Sequence[KubeObject],
    before: KubeSchedulerConfiguration,
    after: KubeSchedulerConfiguration,
    now_s: float,
) -> WhatIfAnswer:
    """Schedule both sets of objects and return the differences.

    Raises InputError for an invalid configuration or object.
    """
    first = schedule(objects, before, now_s=now_s)
    second = schedule(changed, after, now_s=now_s)
    old, new = _nodes(objects, first), _nodes(changed, second)
    why = {one.pod: one.message for one in second.unschedulable}
    why |= {one.pod: f"preempted by {one.by}" for one in second.evicted}
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
        differences=differing[:MAX_DIFFERENCES],
        differ=len(differing),
    )


def _nodes(objects: Iterable[KubeObject], result: ScheduleResult) -> dict[str, str]:
    """Return the final node of each pod; empty for pending and evicted pods."""
    nodes = {obj.key: obj.spec.node_name for obj in objects if isinstance(obj, Pod)}
    nodes |= {one.pod: one.node for one in result.placements}
    return nodes | {one.pod: "" for one in result.evicted}


def example_policy(configuration: KubeSchedulerConfiguration) -> str:
    """Return a sample policy for pods of the configuration's schedulers."""
    names = [profile.scheduler_name for profile in configuration.profiles]
    return _EXAMPLE % json.dumps(names)


class ClusterReader(Protocol):
    """Thread-safe reader of the kinds that the scheduler does not watch; may block."""

    def __call__(self, kind: type[KubeObject]) -> Sequence[KubeObject]:
        """Return the objects of a kind.  Raises ClusterError."""


@dataclass(frozen=True, slots=True)
class MovePlanner:
    """Planner of moves; ``policy`` is the default policy of the page and ``origin`` its source.

    ``read`` reads a real cluster; None for a cluster in memory, whose objects come with the
    scheduler's.
    """

    policy: str
    origin: str
    plugins: Callable[[DeschedulerConfiguration], Sequence[DeschedulerPluginSpec[Any]]]
    scheduler_plugins: Callable[[KubeSchedulerConfiguration], Sequence[PluginSpec[Any]]]
    read: ClusterReader | None = None

    def plan(
        self,
        objects: Sequence[KubeObject],
        policy: str,
        prover: KubeSchedulerConfiguration,
        gates: FeatureGates,
        now_s: float,
    ) -> ResultPage:
        """Return the plan as a result page; ``gates`` belong to the scheduler.

        Kinds that cannot be read are listed in the page's facts.  Raises InputError for an invalid
        policy, BugError for a plugin that failed.
        """
        source = "policy"
        configuration = decode_descheduler_configuration(
            yaml_document(policy.encode(), source), source
        )
        unread: list[str] = []
        read = self.read or (lambda _: ())
        for kind in UNFOLLOWED:
            try:
                objects = [*read(kind), *objects]
            except ClusterError as error:
                unread.append(f"ignored objects of kind {kind.KIND}, which cannot be read: {error}")
        made = plan_moves(
            objects,
            configuration,
            now_s=now_s,
            prover=prover,
            out_of_tree=self.plugins(configuration),
            scheduler_plugins=self.scheduler_plugins(prover),
            source=source,
            scheduler_gates=gates,
        )
        page = plan_page(made, "What would move")
        return replace(page, facts=(*page.facts, *unread))


def unfollowed_objects(handle: SchedulerHandle) -> list[KubeObject]:
    """Return the objects of a cluster in memory whose kinds its scheduler does not watch."""
    return [obj for kind in UNFOLLOWED for obj in handle.cluster.list(kind).items]
