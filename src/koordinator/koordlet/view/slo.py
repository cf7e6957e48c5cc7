"""Effective NodeSLO: defaults for omitted fields, and neutral values for disabled sections.

Source: koordinator pkg/util/sloconfig/nodeslo_config.go; pkg/koordlet/statesinformer/impl/
states_nodeslo.go, ``mergeNodeSLOSpec``, ``mergeNoneResourceQOSIfDisabled``.
"""

from typing import Final

from msgspec.structs import replace

from koordinator.api.bounds import AcceptedValues, accepted_by, attribute_of, json_name
from koordinator.api.meta import ApiStruct
from koordinator.api.node_slo import CPU_BURST, SYSTEM, THRESHOLD, NodeSloSpec, overlaid
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
#: Base of a pod's memory QoS with policy ``auto``.
AUTO_MEMORY_QOS: Final = {
    "LSR": _LATENCY_SENSITIVE.memory_qos,
    "LS": _LATENCY_SENSITIVE.memory_qos,
    "BE": _BEST_EFFORT.memory_qos,
}


def effective_slo(spec: NodeSloSpec, layout: CgroupLayout) -> NodeSloSpec:
    """Return the spec with defaults for omitted fields and neutral values for disabled sections.

    Raises InputError, with the field, for values that no node can apply; the caller then keeps the
    previous spec.
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
            lsr_class=_without_disabled(classes.lsr_class),
            ls_class=_without_disabled(classes.ls_class),
            be_class=_without_disabled(classes.be_class),
            system_class=_without_disabled(classes.system_class),
        ),
    )


def _without_disabled(qos: ResourceQos | None) -> ResourceQos | None:
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
    sections = {
        "resourceUsedThresholdWithBE": spec.resource_used_threshold_with_be,
        "cpuBurstStrategy": spec.cpu_burst_strategy,
        "systemStrategy": spec.system_strategy,
    }
    for name, section in sections.items():
        if section is not None:
            _check_fields(section, f"spec.{name}")
    strategy = spec.resource_qos_strategy
    if strategy is not None:
        path = "spec.resourceQOSStrategy"
        if strategy.policies is not None:
            _check_fields(strategy.policies, f"{path}.policies")
        classes = {
            "lsrClass": strategy.lsr_class,
            "lsClass": strategy.ls_class,
            "beClass": strategy.be_class,
            "systemClass": strategy.system_class,
        }
        for name, qos in classes.items():
            if qos is not None:
                _check_class(qos, f"{path}.{name}")
    names = [application.name for application in spec.host_applications]
    for index, application in enumerate(spec.host_applications):
        path = f"spec.hostApplications[{index}]"
        if not application.name or names.count(application.name) > 1:
            raise InputError(
                f"must be unique and not empty, got {application.name!r}", path=f"{path}.name"
            )
        try:
            layout.host_application(application)
        except InputError as error:
            raise error.within(path=path) from None


def _check_class(qos: ResourceQos, path: str) -> None:
    sections = {"cpuQOS": qos.cpu_qos, "memoryQOS": qos.memory_qos, "resctrlQOS": qos.resctrl_qos}
    for name, section in sections.items():
        if section is not None:
            _check_fields(section, f"{path}.{name}")


def _check_fields(section: ApiStruct, path: str) -> None:
    """Raise InputError for a value outside of the field's declared words or bounds."""
    kind = type(section)
    for attribute, accepted in accepted_by(kind).items():
        value = getattr(section, attribute)
        field_path = f"{path}.{json_name(kind, attribute)}"
        if accepted.words:
            if value is not None and value not in accepted.words:
                words = ", ".join(accepted.words)
                raise InputError(f"must be one of {words}, got {value!r}", path=field_path)
        elif value is not None and accepted.node is not None:
            _check_number(value, accepted, section, field_path)


def _check_number(value: int, accepted: AcceptedValues, section: ApiStruct, path: str) -> None:
    bounds = accepted.node
    if accepted.exceeds:
        lower = getattr(section, attribute_of(type(section), accepted.exceeds)) or 0
        if value <= lower:
            raise InputError(
                f"must be greater than {accepted.exceeds}, which is {lower}, got {value}",
                path=path,
            )
    if bounds is not None and value not in bounds:
        raise InputError(f"must be {bounds}, got {value}", path=path)
