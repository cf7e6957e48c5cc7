"""Simulated clusters: the real scheduler on the in-memory cluster and a virtual clock.

``embedded`` cluster from manifests, scheduled to a fixed point (``koord schedule``)
``run``      workload over virtual time, with a report (``koord simulate`` and ``koord demo``)
``workload`` types of the workload file; ``workload_file`` reads it, ``generation`` draws nodes
             (``node_pools``), pods (``pod_streams``) and failures from it
``world``    event loop in virtual time; ``stages`` defines the behaviour of pods and nodes
``usage``    usage of pods relative to their requests; ``colocation`` simulates services and batch
             pods that share nodes, with manager and node agents; ``yarn`` adds YARN queues
``limited_descheduler`` descheduler within a budget of moves; ``evictions`` evaluates the moves
``gauge``    samples of a world
``report``   report as a page and a table; ``progress`` shows a running simulation
``research`` experiments on a public GPU trace
"""

from koordinator.simulator.configurations import default_configuration, shipped_configuration
from koordinator.simulator.embedded import Embedded, ScheduleResult, schedule
from koordinator.simulator.run import (
    MoveSettings,
    PodPlacement,
    Simulation,
    SimulationResult,
    simulate,
)
from koordinator.simulator.workload import Workload
from koordinator.simulator.workload_file import demo_workload, parse_workload, read_workload
from koordinator.simulator.world import Submission, World

__all__ = [
    "Embedded",
    "MoveSettings",
    "PodPlacement",
    "ScheduleResult",
    "Simulation",
    "SimulationResult",
    "Submission",
    "Workload",
    "World",
    "default_configuration",
    "demo_workload",
    "parse_workload",
    "read_workload",
    "schedule",
    "shipped_configuration",
    "simulate",
]
