"""What a descheduler would move now, and why: a plan that is made on a copy, to look at.

``koord descheduler plan`` tells the same; here nothing can be applied.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.priority import PriorityClass
from koordinator.descheduler.configuration import (
    DeschedulerConfiguration,
    decode_descheduler_configuration,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.migration.workloads import WORKLOAD_KINDS
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.trial import FOLLOWED
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
#: Kinds that a descheduler reads and a scheduler does not follow.
UNFOLLOWED: tuple[type[KubeObject], ...] = (
    PriorityClass,
    *(kind for kind in WORKLOAD_KINDS if kind not in FOLLOWED),
    PodMigrationJob,
)


def example_policy(configuration: KubeSchedulerConfiguration) -> str:
    """Return a policy to begin with, for pods of these schedulers."""
    names = [profile.scheduler_name for profile in configuration.profiles]
    return _EXAMPLE % json.dumps(names)


class ClusterReader(Protocol):
    """Reads what the scheduler does not follow; called by several threads, and may wait."""

    def __call__(self, kind: type[KubeObject]) -> Sequence[KubeObject]:
        """Return the objects of a kind.  Raises ClusterError."""


@dataclass(frozen=True, slots=True)
class MovePlanner:
    """Plans by a policy; ``policy`` is the one that readers begin with, ``origin`` whose it is.

    ``read`` reads the cluster; None where it is in memory, and is asked with the scheduler.
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
        now_s: float,
    ) -> ResultPage:
        """Return the plan as a page shows it.

        What of the cluster can't be read is told.  Raises InputError for a policy that can't be
        meant, BugError for what broke.
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
                unread.append(f"without objects of kind {kind.KIND}, which can't be read: {error}")
        made = plan_moves(
            objects,
            configuration,
            now_s=now_s,
            prover=prover,
            out_of_tree=self.plugins(configuration),
            scheduler_plugins=self.scheduler_plugins(prover),
            source=source,
        )
        page = plan_page(made, "What would move")
        return replace(page, facts=(*page.facts, *unread))


def unfollowed_objects(handle: SchedulerHandle) -> list[KubeObject]:
    """Return what a cluster in memory has of the kinds that its scheduler does not follow."""
    return [obj for kind in UNFOLLOWED for obj in handle.cluster.list(kind).items]
