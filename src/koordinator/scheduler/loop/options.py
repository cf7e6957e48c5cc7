"""Options of a scheduler that hold for all of its profiles."""

from collections.abc import Callable
from dataclasses import replace

from koordinator.api.kube_version import V1_37
from koordinator.api.kubescheduler import NO_GATES, FeatureGates
from koordinator.api.kubescheduler.gates import (
    CROSS_SCHEDULER_NOMINATION,
    DRA_NODE_ALLOCATABLE,
    POD_LEVEL_RESIZE,
    PRIORITY_TRANSFORMER,
    REPLACE_RESOURCES_TRANSFORMER,
)
from koordinator.api.pod import Pod
from koordinator.domain.resized_pods import DEFAULT_RULES, ResizeRules
from koordinator.domain.transforms import replaced_resources, with_priority
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of a scheduler; the defaults are kube-scheduler's."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    max_unschedulable_s: float = 300.0
    report: bool = True  # write events and conditions; conditions of victims are always written
    explain: bool = False  # keep the scorecard of every decision; much slower
    merge_runs: bool = True  # decide runs of identical pods at once; the outcome is the same
    run_limit: int = 4096
    in_flight: int = (
        1024  # binds in flight above which decisions wait until half of them have ended
    )
    #: write the domains to ClusterNetworkTopology; None: if a profile gathers gangs
    writes_network: bool | None = None
    answers_explanations: bool = False  # keeps ScheduleExplanation objects answered
    transforms: tuple[Callable[[Pod], Pod], ...] = ()  # applied to every pod before it is used
    tracks_other_schedulers: bool = False  # counts pods that they have nominated to nodes
    resize: ResizeRules = DEFAULT_RULES
    gates: FeatureGates = NO_GATES
    wall_clock: Clock | None = None  # that times of API objects are compared with; None: the clock

    def with_gates(self, gates: FeatureGates) -> "SchedulerOptions":
        """Return the options as the feature gates that are on change them."""
        transforms = {
            REPLACE_RESOURCES_TRANSFORMER: replaced_resources,
            PRIORITY_TRANSFORMER: with_priority,
        }
        return replace(
            self,
            tracks_other_schedulers=CROSS_SCHEDULER_NOMINATION in gates,
            transforms=tuple(it for gate, it in transforms.items() if gate in gates),
            gates=gates,
            resize=ResizeRules(
                sums_per_pod=gates.level >= V1_37,
                pod_level=POD_LEVEL_RESIZE in gates,
                claims=DRA_NODE_ALLOCATABLE in gates,
            ),
        )

    @property
    def merges(self) -> bool:
        """Whether runs are decided at once: not if each decision is to be explained."""
        return self.merge_runs and not self.explain
