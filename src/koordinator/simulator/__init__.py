"""Clusters that exist only here: the real scheduler on the in-memory cluster and a virtual clock.

``embedded`` a cluster from manifests, scheduled to a fixed point: what ``koord schedule`` runs
``run``      a workload over virtual time to a report: what ``koord simulate`` and ``demo`` run
``workload`` types of the YAML file that ``workload_file`` reads; ``generation`` makes nodes
             (``node_pools``), pods (``pod_streams``) and failures of it
``world``    virtual time; ``stages`` says how pods and nodes behave in it
``usage``    what pods use of what they ask for; ``colocation`` is services and batch pods that
             share nodes: manager and node agents over virtual time; ``yarn`` queues beside them
``limited_descheduler`` moves pods of a world, within a budget; ``evictions`` judges that
``gauge``    samples of a world
``report``   the report as a page and a table; ``progress`` shows a run while it goes on
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
