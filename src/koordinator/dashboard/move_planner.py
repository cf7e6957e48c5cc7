"""Descheduler plans for the page: moves that a policy would make, dry-run on a copy.

``koord descheduler plan`` shows the same plan; the dashboard cannot apply it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.policy import PriorityClass
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
#: Kinds that a descheduler reads and a scheduler does not watch.
UNFOLLOWED: tuple[type[KubeObject], ...] = (
    PriorityClass,
    *(kind for kind in WORKLOAD_KINDS if kind not in FOLLOWED),
    PodMigrationJob,
)


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
        now_s: float,
    ) -> ResultPage:
        """Return the plan as a result page.

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
        )
        page = plan_page(made, "What would move")
        return replace(page, facts=(*page.facts, *unread))


def unfollowed_objects(handle: SchedulerHandle) -> list[KubeObject]:
    """Return the objects of a cluster in memory whose kinds its scheduler does not watch."""
    return [obj for kind in UNFOLLOWED for obj in handle.cluster.list(kind).items]
