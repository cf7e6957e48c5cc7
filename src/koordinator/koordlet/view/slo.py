"""The NodeSLO that counts: what is left out has its default, what is off is undone.

Source: koordinator pkg/util/sloconfig/nodeslo_config.go; pkg/koordlet/statesinformer/impl/
states_nodeslo.go, ``mergeNodeSLOSpec``, ``mergeNoneResourceQOSIfDisabled``.
"""

from typing import Final

from msgspec.structs import replace

from koordinator.api.meta import ApiStruct
from koordinator.api.node_slo import NodeSloSpec
from koordinator.api.resource_qos import (
    BlockIoQos,
    CpuQos,
    MemoryQos,
    NetworkQos,
    ResctrlQos,
    ResourceQos,
    ResourceQosPolicies,
    ResourceQosStrategy,
)
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.domain.colocation.node_slo import CPU_BURST, SYSTEM, THRESHOLD
from koordinator.domain.colocation.overlay import overlaid
from koordinator.foundation.errors import InputError

NO_CPU_QOS: Final = CpuQos(enable=False, group_identity=0, sched_idle=0, core_expeller=False)
NO_RESCTRL_QOS: Final = ResctrlQos(
    enable=False, cat_range_start_percent=0, cat_range_end_percent=100, mba_percent=100
)
NO_MEMORY_QOS: Final = MemoryQos(
    enable=False,
    min_limit_percent=0,
    low_limit_percent=0,
    throttling_percent=0,
    wmark_ratio=0,
    wmark_scale_permill=50,
    wmark_min_adj=0,
    priority_enable=0,
    priority=0,
    oom_kill_group=0,
)
_NO_NETWORK_QOS = NetworkQos(
    enable=False, ingress_request=0, ingress_limit=0, egress_request=0, egress_limit=0
)
_WATCHFUL = replace(NO_MEMORY_QOS, wmark_ratio=95, wmark_scale_permill=20)
_NO_BLOCK_IO_QOS = BlockIoQos(enable=False)
_LATENCY_SENSITIVE = ResourceQos(
    cpu_qos=CpuQos(enable=False, group_identity=2, sched_idle=0, core_expeller=True),
    resctrl_qos=NO_RESCTRL_QOS,
    memory_qos=replace(_WATCHFUL, wmark_min_adj=-25),
    blkio_qos=_NO_BLOCK_IO_QOS,
    network_qos=_NO_NETWORK_QOS,
)
_BEST_EFFORT = ResourceQos(
    cpu_qos=CpuQos(enable=False, group_identity=-1, sched_idle=0, core_expeller=False),
    resctrl_qos=replace(NO_RESCTRL_QOS, cat_range_end_percent=30),
    memory_qos=replace(_WATCHFUL, wmark_min_adj=50),
    blkio_qos=_NO_BLOCK_IO_QOS,
    network_qos=_NO_NETWORK_QOS,
)
_SYSTEM = ResourceQos(
    cpu_qos=NO_CPU_QOS,
    resctrl_qos=NO_RESCTRL_QOS,
    memory_qos=NO_MEMORY_QOS,
    blkio_qos=_NO_BLOCK_IO_QOS,
    network_qos=_NO_NETWORK_QOS,
)
DEFAULT_SLO: Final = NodeSloSpec(
    resource_used_threshold_with_be=THRESHOLD,
    resource_qos_strategy=ResourceQosStrategy(
        policies=ResourceQosPolicies(cpu_policy="groupIdentity", net_qos_policy="tc"),
        lsr_class=_LATENCY_SENSITIVE,
        ls_class=_LATENCY_SENSITIVE,
        be_class=_BEST_EFFORT,
        system_class=_SYSTEM,
        cgroup_root=ResourceQos(blkio_qos=_NO_BLOCK_IO_QOS),
    ),
    cpu_burst_strategy=CPU_BURST,
    system_strategy=SYSTEM,
)
#: What memory QoS ``auto`` of a pod starts from.
AUTO_MEMORY_QOS: Final = {
    "LSR": _LATENCY_SENSITIVE.memory_qos,
    "LS": _LATENCY_SENSITIVE.memory_qos,
    "BE": _BEST_EFFORT.memory_qos,
}

_SUPPRESS_POLICIES = ("cpuset", "cfsQuota")
_EVICT_POLICIES = ("evictByRealLimit", "evictByAllocatable")
_BURST_POLICIES = ("none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly")
_CPU_POLICIES = ("groupIdentity", "coreSched")


def effective_slo(spec: NodeSloSpec, layout: CgroupLayout) -> NodeSloSpec:
    """Return the spec with defaults for what it leaves out and nothing for what is off.

    Raises InputError, naming the field, for what this node can't follow; then the caller keeps
    what it had.
    """
    merged = overlaid(DEFAULT_SLO, spec)
    _check(merged, layout)
    classes = merged.resource_qos_strategy
    if classes is None:
        return merged
    return replace(
        merged,
        resource_qos_strategy=replace(
            classes,
            lsr_class=_undone(classes.lsr_class),
            ls_class=_undone(classes.ls_class),
            be_class=_undone(classes.be_class),
        ),
    )


def _undone(qos: ResourceQos | None) -> ResourceQos | None:
    if qos is None:
        return None
    changes: dict[str, ApiStruct] = {}
    if qos.cpu_qos is not None and qos.cpu_qos.enable is False:
        changes["cpu_qos"] = NO_CPU_QOS
    if qos.resctrl_qos is not None and qos.resctrl_qos.enable is False:
        changes["resctrl_qos"] = NO_RESCTRL_QOS
    if qos.memory_qos is not None and qos.memory_qos.enable is False:
        changes["memory_qos"] = NO_MEMORY_QOS
    return replace(qos, **changes)


def _check(spec: NodeSloSpec, layout: CgroupLayout) -> None:
    threshold, burst = spec.resource_used_threshold_with_be, spec.cpu_burst_strategy
    strategy = spec.resource_qos_strategy
    if threshold is not None:
        path = "spec.resourceUsedThresholdWithBE"
        _one_of(_SUPPRESS_POLICIES, threshold.cpu_suppress_policy, f"{path}.cpuSuppressPolicy")
        _one_of(_EVICT_POLICIES, threshold.cpu_evict_policy, f"{path}.cpuEvictPolicy")
    if burst is not None:
        _one_of(_BURST_POLICIES, burst.policy, "spec.cpuBurstStrategy.policy")
    if strategy is not None:
        path = "spec.resourceQOSStrategy"
        if strategy.policies is not None and strategy.policies.cpu_policy is not None:
            _one_of(_CPU_POLICIES, strategy.policies.cpu_policy, f"{path}.policies.cpuPolicy")
        classes = {
            "lsrClass": strategy.lsr_class,
            "lsClass": strategy.ls_class,
            "beClass": strategy.be_class,
        }
        for name, qos in classes.items():
            if qos is not None:
                _check_class(qos, f"{path}.{name}")
    names = [application.name for application in spec.host_applications]
    for index, application in enumerate(spec.host_applications):
        path = f"spec.hostApplications[{index}]"
        if not application.name or names.count(application.name) > 1:
            raise InputError(
                f"found {application.name!r}; accepted is a name of its own", path=f"{path}.name"
            )
        try:
            layout.host_application(application)
        except InputError as error:
            raise error.within(path=path) from None


def _check_class(qos: ResourceQos, path: str) -> None:
    cpu, resctrl, memory = qos.cpu_qos, qos.resctrl_qos, qos.memory_qos
    if cpu is not None:
        _within(-1, 2, cpu.group_identity, f"{path}.cpuQOS.groupIdentity")
        _within(0, 1, cpu.sched_idle, f"{path}.cpuQOS.schedIdle")
    if memory is not None:
        _within(0, 12, memory.priority, f"{path}.memoryQOS.priority")
        _within(0, 1, memory.priority_enable, f"{path}.memoryQOS.priorityEnable")
        _within(0, 1, memory.oom_kill_group, f"{path}.memoryQOS.oomKillGroup")
    if resctrl is not None:
        start = resctrl.cat_range_start_percent or 0
        end = resctrl.cat_range_end_percent
        if end is not None and start >= end:
            raise InputError(
                f"found {end}; accepted is more than catRangeStartPercent, which is {start}",
                path=f"{path}.resctrlQOS.catRangeEndPercent",
            )
        _within(1, 100, resctrl.mba_percent, f"{path}.resctrlQOS.mbaPercent")


def _one_of(accepted: tuple[str, ...], found: str, path: str) -> None:
    if found not in accepted:
        raise InputError(f"found {found!r}; accepted is {', '.join(accepted)}", path=path)


def _within(least: int, most: int, found: int | None, path: str) -> None:
    if found is not None and not least <= found <= most:
        raise InputError(f"found {found}; accepted is {least}..{most}", path=path)
