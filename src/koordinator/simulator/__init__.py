"""Simulated clusters: the real scheduler on the in-memory cluster and a virtual clock.

``embedded`` cluster from manifests, scheduled to a fixed point (``koord schedule``)
``api``      ``schedule`` and ``simulate`` on paths or objects, with plugins of one's own
``sources``  what a run simulates: workloads, manifests, traces, recordings
``run``      source over virtual time, with a report (``koord simulate`` and ``koord demo``)
``results``  result of a run, with tables and charts; ``job_metrics`` computes metrics of jobs
``policies`` configurations in which one plugin scores; ``plugin_files`` loads plugins of files
``workload`` types of the workload file; ``workload_file`` reads it, ``generation`` draws nodes
             (``node_pools``), pods (``pod_streams``) and failures from it
``world``    event loop in virtual time; ``stages`` defines the behaviour of pods and nodes
``usage``    usage of pods relative to their requests; ``colocation`` simulates services and batch
             pods that share nodes, with manager and node agents; ``yarn`` adds YARN queues
``limited_descheduler`` descheduler within a budget of moves; ``evictions`` evaluates the moves
``gauge``    samples of a world
``report``   report as a page and a table; ``progress`` shows a running simulation
``research`` experiments on a public GPU trace
``experiments`` grids of runs in parallel processes (``koord experiment``)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koordinator.simulator.api import load_source, proven_bound, schedule, simulate
    from koordinator.simulator.embedded import Embedded, ScheduleResult
    from koordinator.simulator.manifests.reader import read_manifests
    from koordinator.simulator.plugin_files import PluginError, load_plugins
    from koordinator.simulator.policies import (
        POLICIES,
        default_configuration,
        shipped_configuration,
    )
    from koordinator.simulator.results import PodPlacement, RunPlots, SimulationResult, plot_runs
    from koordinator.simulator.run import MoveSettings, Simulation
    from koordinator.simulator.sources import Source
    from koordinator.simulator.workload import Workload
    from koordinator.simulator.workload_file import demo_workload, parse_workload, read_workload
    from koordinator.simulator.world import Submission, World

__all__ = [
    "POLICIES",
    "Embedded",
    "MoveSettings",
    "PluginError",
    "PodPlacement",
    "RunPlots",
    "ScheduleResult",
    "Simulation",
    "SimulationResult",
    "Source",
    "Submission",
    "Workload",
    "World",
    "default_configuration",
    "demo_workload",
    "load_plugins",
    "load_source",
    "parse_workload",
    "plot_runs",
    "proven_bound",
    "read_manifests",
    "read_workload",
    "schedule",
    "shipped_configuration",
    "simulate",
]


#: Modules of the names above, loaded when a name is used: ``koord schedule`` needs few of them.
_MODULES = {
    "POLICIES": "policies",
    "Embedded": "embedded",
    "MoveSettings": "run",
    "PluginError": "plugin_files",
    "PodPlacement": "results",
    "RunPlots": "results",
    "ScheduleResult": "embedded",
    "Simulation": "run",
    "SimulationResult": "results",
    "Source": "sources",
    "Submission": "world",
    "Workload": "workload",
    "World": "world",
    "default_configuration": "policies",
    "demo_workload": "workload_file",
    "load_plugins": "plugin_files",
    "load_source": "api",
    "parse_workload": "workload_file",
    "plot_runs": "results",
    "proven_bound": "api",
    "read_manifests": "manifests.reader",
    "read_workload": "workload_file",
    "schedule": "api",
    "shipped_configuration": "policies",
    "simulate": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
