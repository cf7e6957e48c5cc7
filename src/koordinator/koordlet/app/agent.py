"""Main loop of the node agent: measure, decide, apply, and report on a schedule.

One thread calls ``step`` and owns all state in this module.  A step never waits for the network:
the watch is polled, and writes to the API server are queued in the outbox.
Source: koordinator cmd/koordlet, pkg/koordlet/koordlet.go (start order of the parts).
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetricStatus
from koordinator.cluster.port import Cluster, Watch
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.foundation.errors import BugError
from koordinator.koordlet.app.discovery import NodeHardware
from koordinator.koordlet.app.evictions import EvictionManager
from koordinator.koordlet.app.metrics_snapshot import MetricsSnapshot
from koordinator.koordlet.app.node_state import KINDS, NodeCheckpoint, selectors
from koordinator.koordlet.app.object_intents import plan_all
from koordinator.koordlet.app.outbox import (
    BAD_SLO,
    CGROUPS_MISSING,
    CPUS_UNREADABLE,
    KUBELET_MEMORY_QOS,
    POLICY_RAISED,
    NodeWarnings,
)
from koordinator.koordlet.app.parts import AgentParts
from koordinator.koordlet.app.reports import (
    DeviceReport,
    SliceReport,
    TopologyReport,
    device_of_hardware,
    report_usage,
)
from koordinator.koordlet.app.rounds import Timers
from koordinator.koordlet.collectors.context import CollectionContext, Collector
from koordinator.koordlet.hooks.pod_hooks import PodHooks
from koordinator.koordlet.intents import SetCgroup
from koordinator.koordlet.qos.cpu_suppress import suppress
from koordinator.koordlet.qos.eviction import StrategyInputs, Task
from koordinator.koordlet.qos.node_pressure import cpu_tasks, memory_tasks
from koordinator.koordlet.qos.resctrl import ResctrlFacts, wants_resctrl
from koordinator.koordlet.report.gpu_slices import gpu_slices
from koordinator.koordlet.report.node_metric import (
    MetricReport,
    ReportPolicy,
    policy_problem,
    report_policy,
)
from koordinator.koordlet.runtime_hooks.runtime_hooks import PublishedHooks
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)

_HOUSEKEEPING_S = 60.0


class Koordlet:
    """Node agent; ``step`` runs one round of its loop."""

    def __init__(self, parts: AgentParts) -> None:
        options = parts.options
        self.state, self.store, self.audit = parts.state, parts.store, parts.executor.audit
        self.slices = SliceReport(parts.outbox, options.node_name)
        self._options = options
        self._clock, self._wall_clock = parts.clock, parts.wall_clock
        self._host, self._outbox = parts.host, parts.outbox
        self._gauges = parts.gauges
        self._cgroups, self._search = parts.cgroups, parts.search
        self._executor, self._isolation = parts.executor, parts.isolation
        self._burst, self._forecasts = parts.burst, parts.forecasts
        self._network, self._volumes = parts.network, parts.volumes
        self._collectors = parts.collectors
        self._cpu_evictions, self._memory_evictions = parts.cpu_evictions, parts.memory_evictions
        self._runtime_hooks, self._hook_reports = parts.runtime_hooks, parts.hook_reports
        self._pod_resources, self._device_holders = parts.pod_resources, parts.device_holders
        self._gpu_claims = parts.gpu_claims
        self._warnings = NodeWarnings(parts.outbox, options.node_name, parts.clock)
        self._checkpoint = NodeCheckpoint(parts.host, options.checkpoint_folder)
        self._topology = TopologyReport(parts.outbox)
        self._devices = DeviceReport(parts.outbox)
        self._watch: Watch | None = None
        #: Inputs of the hooks published last; see ``_publish_hooks``.
        self._published: tuple[object, ...] = ()
        self._published_pods: tuple[PodView, ...] | None = None
        #: Caches of the machine; None while resctrl is not mounted.
        self._caches: ResctrlFacts | None = None
        #: Quotas and bursts that CPU burst requested last, for the metrics.
        self._scaled: dict[tuple[CgroupFile, str], str] = {}
        self._usage: NodeMetricStatus | None = None  # last reported status
        self._hardware = NodeHardware(parts.host, parts.gpus, options, parts.gauges)
        #: Inputs of the last reconciliation; empty forces the next one.
        self._reconciled: tuple[object, ...] = ()
        self._started_offline = False
        self._timers = self._make_timers(Timers(parts.on_failure))
        if parts.cluster is not None:
            self.connect(parts.cluster)

    @property
    def is_ready(self) -> bool:
        """Whether the node is known and at least one sample was taken."""
        return self.state.is_known and len(self.store) > 0

    def next_s(self) -> float:
        """Return the time at which the next timer is due, if no event arrives earlier."""
        return self._timers.next_s()

    def connect(self, cluster: Cluster) -> None:
        """Follow the objects of this node."""
        self._watch = cluster.watch(KINDS, selectors(self._options.node_name))

    def serve_from_checkpoint(self) -> None:
        """Prepare answers to the container runtime from the checkpoint, also before ``connect``.

        Without a checkpoint, hooks see only the annotations that the runtime passes.  Only the
        hooks get this state: measuring and evictions begin with the first step.  While there are no
        cgroups of pods this does nothing, and a later step does it.
        """
        if not self._cgroup_search_is_over():
            return
        self._started_offline = True
        self.state.restore(self._checkpoint.read(), self._cgroups.exists)
        if self._runtime_hooks is None or not self._hardware.read_cpus():
            return
        now_s = self._clock.now_s()
        if self.state.is_known:
            self._publish_pods()
            self._publish_hooks(now_s)
            return
        hardware, node = (
            self._hardware.last,
            Node(metadata=ObjectMeta(name=self._options.node_name)),
        )
        kubelet = hardware.kubelet
        machine = Machine(node, hardware.cpus, kubelet.policy, knows_allocations=kubelet.is_known)
        offline = NodeView(now_s, machine, self.state.slo, (), self._layout, self._cgroups)
        hooks = PodHooks.of(offline, self._options.gates)
        self._runtime_hooks.publish(PublishedHooks(hooks))

    def step(self) -> None:
        """Apply new events from the watch and run the timers that are due."""
        if self._watch is None:
            raise BugError("a step of the agent before connect")
        is_refused = self.state.update(self._watch)
        if self.state.node is not None:
            self._warnings.uid = self.state.node.metadata.uid
        if is_refused:
            self._warnings.report(BAD_SLO, self.state.slo_problem)
        spec = self.state.metric_spec
        self._warnings.update(POLICY_RAISED, "" if spec is None else policy_problem(spec))
        if not self._cgroup_search_is_over():
            return
        now_s = self._clock.now_s()
        if not self.state.is_synced and not self._started_offline:
            self.serve_from_checkpoint()
        knows_cpus = self._hardware.read_cpus()
        self._warnings.update(CPUS_UNREADABLE, self._hardware.cpu_problem)
        if self.state.is_known:
            self._publish_pods()  # first: a container may be waiting for it to be created
        if self.state.is_known and knows_cpus:
            self._timers.run(now_s)
            self._publish_hooks(self._clock.now_s())
        if self.state.is_synced:
            self._checkpoint.save(self.state.objects, now_s)
            if self._gpu_claims is not None:
                self._gpu_claims.keep_claims_of(view.pod for view in self.state.pods)

    def close(self) -> None:
        """Close the watch.  Settings on the machine stay, so that running pods keep them."""
        if self._watch is not None:
            self._watch.close()
        self._collectors.cpi.close()

    def _cgroup_search_is_over(self) -> bool:
        """Return whether the search for cgroups of pods has ended; report missing cgroups."""
        before = self._layout
        is_over = self._search.is_over(self._clock.now_s())
        if self._layout != before:
            self.state.set_layout(self._layout)
        self._warnings.update(CGROUPS_MISSING, self._search.problem)
        return is_over

    @property
    def _layout(self) -> CgroupLayout:
        return self._search.layout

    # -- rounds ------------------------------------------------------------------------------

    def _make_timers(self, timers: Timers) -> Timers:
        options, gates = self._options, self._options.gates
        second = options.collect_interval_s
        timers.add("hardware", options.hardware_interval_s, self._refresh_hardware)
        collectors = self._collectors
        timers.add("measuring", second, lambda now_s: self._collect(collectors.each_second, now_s))
        for name, interval_s, collector in collectors.slower:
            timers.add(name, interval_s, partial(self._collect, [collector]))
        if "BECPUSuppress" in gates:
            timers.add("CPU suppress", options.suppress_interval_s, self._suppress)
        if {"CPUBurst", "CPUNormalization"} & gates:
            timers.add("CPU burst", options.reconcile_interval_s, self._plan_burst)
        timers.add("CPU eviction", options.cpu_evict_interval_s, self._evict_for_cpu)
        timers.add("memory eviction", options.memory_evict_interval_s, self._evict_for_memory)
        timers.add("reconciling", options.reconcile_interval_s, self._reconcile)
        if {"TCNetworkQoS", "TerwayQoS"} & gates:
            timers.add("network", options.reconcile_interval_s, self._reconcile_network)
        timers.add("housekeeping", _HOUSEKEEPING_S, self._garbage_collect)
        timers.add("training", options.prediction.training_interval_s, self._train)
        timers.add("topology", options.topology_interval_s, self._report_topology)
        timers.add("devices", options.topology_interval_s, self._report_devices)
        if options.reports_usage:
            first_s = self._clock.now_s() + self._policy().report_s
            timers.add("usage", lambda: self._policy().report_s, self._report_usage, first_s)
        return timers

    def _refresh_hardware(self, _: float) -> None:
        self._check_kubelet(restarted=self._hardware.refresh())

    def _check_kubelet(self, *, restarted: bool) -> None:
        """Reconcile all cgroups if the kubelet has restarted; report conflicting settings."""
        if restarted:
            self._reconciled = ()
            self._executor.invalidate()
        self._warnings.update(KUBELET_MEMORY_QOS, self._hardware.kubelet_problem)

    def _collect(self, collectors: Sequence[Collector], now_s: float) -> None:
        context = CollectionContext(
            files=self._host,
            roots=self._options.roots,
            cgroups=self._cgroups,
            store=self.store,
            layout=self._layout,
            machine=self._hardware.machine(self.state.node, self.state.pods),
            slo=self.state.slo,
            pods=self.state.pods,
        )
        for collector in collectors:

            def collect(pods: tuple[PodView, ...], collector: Collector = collector) -> None:
                collector.collect(context.with_pods(pods), now_s)

            self._isolation.attempt(type(collector).__name__, context.pods, collect)
        if self._gauges is not None:
            self._gauges.set_node_usage(self.store)
            self._gauges.publish(self._snapshot(now_s))

    def _suppress(self, now_s: float) -> None:
        managed = "BECPUManager" in self._options.gates
        suppression = self._decide(
            "CPU suppress", now_s, lambda inputs: suppress(inputs, cpus_are_managed=managed)
        )
        if suppression is None:
            return
        self._executor.apply(suppression.intents, now_s)
        if self._gauges is not None:
            self._gauges.set_suppression(suppression)

    def _plan_burst(self, now_s: float) -> None:
        intents = self._decide("CPU burst", now_s, self._burst.plan) or ()
        self._executor.apply(intents, now_s)
        folders = {each.folder for pod in self.state.pods for each in pod.containers}
        kept = {key: value for key, value in self._scaled.items() if key[1] in folders}
        new = {(it.file, it.folder): it.value for it in intents if isinstance(it, SetCgroup)}
        self._scaled = kept | new

    def _evict_for_cpu(self, now_s: float) -> None:
        self._evict("CPU eviction", self._cpu_evictions, cpu_tasks, now_s)

    def _evict_for_memory(self, now_s: float) -> None:
        self._evict("memory eviction", self._memory_evictions, memory_tasks, now_s)

    def _evict(
        self,
        name: str,
        evictions: EvictionManager,
        tasks_of: Callable[[StrategyInputs, Collection[str]], Sequence[Task]],
        now_s: float,
    ) -> None:
        evictions.finish_stops(now_s)
        if not evictions.is_cooling(now_s):
            gates = self._options.gates
            tasks = self._decide(name, now_s, lambda inputs: tasks_of(inputs, gates))
            evictions.evict(tasks or (), now_s)

    def _reconcile(self, now_s: float) -> None:
        """Apply intents that depend on objects only, when objects change and every ten seconds."""
        if self._hardware.kubelet_has_ended():
            self._check_kubelet(restarted=self._hardware.detect_kubelet_restart())
        view, gates = self._view(now_s), self._options.gates
        period = now_s // self._options.hooks_interval_s
        seen = (view.pods, view.slo, view.machine, period)
        if len(seen) == len(self._reconciled) and all(map(_is_same, seen, self._reconciled)):
            return
        self._invalidate_changed(view.pods)
        self._reconciled = seen
        caches = None
        if {"RdtResctrl", "Resctrl"} & gates:
            caches = self._hardware.caches(mounting=wants_resctrl(view))
        self._caches = caches
        keep_quota = self._options.keeps_quota_of_bound_pods
        intents = plan_all(
            view, gates, self._volumes, caches, self._isolation, keep_quota=keep_quota
        )
        writes = self._executor.apply(intents, now_s)
        if self._gauges is not None:
            self._gauges.observe_reconciled(writes, self._layout)

    def _invalidate_changed(self, pods: Sequence[PodView]) -> None:
        """Drop cached writes of pods that have changed: the kubelet may have overwritten them.

        With its MemoryQoS the kubelet clears ``memory.min`` and ``memory.low`` of containers that
        start or are resized.
        """
        before = self._reconciled[0] if self._reconciled else ()
        known = set(map(id, before)) if isinstance(before, tuple) else set()
        changed = [pod for pod in pods if id(pod) not in known]
        self._executor.invalidate({folder for pod in changed for folder in pod.folders})

    def _publish_pods(self) -> None:
        """Publish the pods to the servers that answer queries about their devices."""
        if self._published_pods is self.state.pods:
            return
        self._published_pods = pods = self.state.pods
        if self._device_holders is not None:
            self._device_holders.publish(pods)
        if self._pod_resources is not None:
            self._pod_resources.publish(pods)

    def _reconcile_network(self, now_s: float) -> None:
        view = self._view(now_s)
        self._isolation.attempt(
            "network",
            view.pods,
            lambda pods: self._network.reconcile(view.with_pods(pods), now_s),
        )

    def _publish_hooks(self, now_s: float) -> None:
        """Publish the current state to the runtime hooks, and process their outcomes."""
        if self._runtime_hooks is None or not self._hardware.last.cpus:
            return
        if self._hook_reports is not None:
            self._hook_reports.process(now_s)
            count = self._hook_reports.unprepared.update(self.state.pods, now_s)
            if self._gauges is not None:
                self._gauges.set_unprepared(count)
        view, gates = self._view(now_s), self._options.gates
        seen = (view.pods, view.slo, view.machine, self._caches)
        if len(seen) == len(self._published) and all(map(_is_same, seen, self._published)):
            return
        keep_quota = self._options.keeps_quota_of_bound_pods

        def publish(pods: tuple[PodView, ...]) -> None:
            hooks = PodHooks.of(view.with_pods(pods), gates, keep_quota=keep_quota)
            if self._runtime_hooks is not None:
                published = PublishedHooks(hooks, self._caches, "RdtResctrl" in gates)
                self._runtime_hooks.publish(published)

        self._isolation.attempt("runtime hooks", view.pods, publish)
        self._published = seen

    def _garbage_collect(self, now_s: float) -> None:
        self.store.expire(now_s)
        self._executor.forget(now_s)
        self._search.check(self.state.pods)
        self._volumes.expire()
        if self._gauges is not None:
            self._gauges.set_slo_applied(is_applied=not self.state.slo_problem)
            for (kind, status), count in self._executor.outcomes.items():
                self._gauges.set_write_count(kind, status, count)

    def _train(self, now_s: float) -> None:
        if not self._forecasts.is_restored:
            self._forecasts.restore(self.state.pods)
        self._isolation.attempt(
            "training",
            self.state.pods,
            lambda pods: self._forecasts.train(self.store, pods, now_s),
        )
        self._forecasts.save(now_s)

    # -- reports -----------------------------------------------------------------------------

    def _report_usage(self, now_s: float) -> None:
        if self.state.metric_spec is not None:  # None until the manager creates the NodeMetric
            self._isolation.attempt(
                "usage", self.state.pods, lambda pods: self._report_usage_of(pods, now_s)
            )

    def _report_usage_of(self, pods: tuple[PodView, ...], now_s: float) -> None:
        state = self.state
        report = MetricReport(
            store=self.store,
            policy=self._policy(),
            pods=pods,
            host_applications=state.slo.host_applications,
            numa_nodes=tuple(self._hardware.machine(self.state.node, self.state.pods).numa_nodes),
            gpus=self._hardware.last.gpus,
            knows_hot_pages=self._collectors.cold_pages.is_started,
        )
        machine = self._hardware.machine(self.state.node, self.state.pods)
        prediction = self._forecasts.predict(report.reported_pods(now_s), machine, now_s)
        self._usage = status = report.status(now_s, prediction)
        if self._gauges is not None:
            self._gauges.set_prediction(prediction)
        if status is not None:
            reported_s = self._wall_clock.now_s()
            report_usage(self._outbox, self._options.node_name, status, reported_s)

    def _report_topology(self, now_s: float) -> None:
        hardware = self._hardware.last
        if "NodeTopologyReport" in self._options.gates and hardware.cpus:
            self._topology.report(self._view(now_s), hardware.basics, hardware.zones)

    def _report_devices(self, now_s: float) -> None:
        node, gates = self.state.node, self._options.gates
        if node is None or not {"Accelerators", "RDMADevices"} & gates:
            return
        self._hardware.refresh_accelerators()
        hardware = self._hardware.last
        wanted = device_of_hardware(node, hardware, now_s)
        is_known = not hardware.gpu_problem
        self._devices.report(wanted, now_s, keeps_gpus=not is_known)
        if "GPUResourceSlices" in gates and is_known:
            shares = "DRAConsumableCapacity" in gates
            self.slices.report(gpu_slices(node, wanted, shares=shares), now_s)
            if self._gpu_claims is not None:
                self._gpu_claims.publish(wanted)

    def _snapshot(self, now_s: float) -> MetricsSnapshot:
        gates = self._options.gates
        return MetricsSnapshot(
            view=self._view(now_s),
            store=self.store,
            pressures=self._collectors.pressure.last,
            cookies=self._executor.cookies.assigned,
            shows_each_cpu="PerCPUMetric" in gates,
            shows_oom_scores="OOMScoreAdj" in gates,
            usage=self._usage if "NodeMetricPromMetrics" in gates else None,
            burst=self._scaled,
            cookie_outcomes=dict(self._executor.cookies.outcomes),
            evictions=self._cpu_evictions.counts + self._memory_evictions.counts,
            recent_evictions=self._cpu_evictions.recent(now_s)
            + self._memory_evictions.recent(now_s),
        )

    # -- views -------------------------------------------------------------------------------

    def _policy(self) -> ReportPolicy:
        spec = self.state.metric_spec
        return ReportPolicy() if spec is None else report_policy(spec)

    def _decide(
        self, part: str, now_s: float, strategy: Callable[[StrategyInputs], ResultT]
    ) -> ResultT | None:
        """Run a strategy without the pods that make it fail; None if it fails regardless."""
        view = self._view(now_s)

        def decide(pods: tuple[PodView, ...]) -> ResultT:
            interval_s = self._options.collect_interval_s
            return strategy(StrategyInputs(view.with_pods(pods), self.store, interval_s))

        return self._isolation.attempt(part, view.pods, decide)

    def _view(self, now_s: float) -> NodeView:
        return NodeView(
            now_s,
            self._hardware.machine(self.state.node, self.state.pods),
            self.state.slo,
            self.state.pods,
            self._layout,
            self._cgroups,
        )


def _is_same(new: object, old: object) -> bool:
    """Compare by identity, because objects are frozen; compare floats by value."""
    return new is old or (isinstance(new, float) and new == old)
