"""Explanations for nodes whose NUMA nodes or CPUs do not suffice."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.annotations.numa import (
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    NumaTopologyPolicy,
    NumaTopologySpec,
)
from koordinator.api.device import DeviceType
from koordinator.api.pod import Pod
from koordinator.api.resource_names import (
    CPU,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    RDMA,
    WHOLE_DEVICE,
)
from koordinator.domain.devices.requests import CALLED, names_of
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.errors import InputError
from koordinator.foundation.text import pluralized
from koordinator.scheduler.diagnosis import quantity
from koordinator.scheduler.plugins.node_numa_resource.alignment import (
    policy_at,
    request_at,
    reusable_for_pod,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.numa.align import policy_on
from koordinator.scheduler.rules.numa.node import MILLI
from koordinator.scheduler.rules.numa.trial import NumaTrial
from koordinator.scheduler.rules.smaller_pods import asking_at_least, asking_at_most
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.numa import POLICIES

#: NUMA nodes that a policy allows a pod to use.
_OF = {
    NumaTopologyPolicy.SINGLE_NUMA_NODE: "of one NUMA node",
    NumaTopologyPolicy.RESTRICTED: "of as few NUMA nodes as could hold it",
    NumaTopologyPolicy.BEST_EFFORT: "of its NUMA nodes",
}


_PERCENTAGES = frozenset((GPU, GPU_CORE, GPU_MEMORY_RATIO, RDMA, FPGA))
_NOT_COUNTED = frozenset((GPU_MEMORY, GPU_SHARED))  # not in units of devices
#: Policies of pods, the strictest first; a pod without one follows its node.
_BY_STRICTNESS = (
    NumaTopologyPolicy.SINGLE_NUMA_NODE,
    NumaTopologyPolicy.RESTRICTED,
    NumaTopologyPolicy.BEST_EFFORT,
    NumaTopologyPolicy.NONE,
)


def numa_in_words(view: Snapshot, needs: NumaRequirements) -> str:
    """Return the request for NUMA nodes and CPUs, and the capacity of the view's only row."""
    row = int(view.row_numbers[0])
    on_node = POLICIES[int(view.numa.policy[row])]
    if policy_on(on_node, needs.policy) is None:
        return f"the node's policy is {on_node}, the pod's {needs.policy}"
    trial = _trial(view, needs)
    if trial is None:
        return (
            f"it requests {quantity(CPU, needs.cpu_milli)} CPUs; bound CPUs must be a whole number"
        )
    parts, policy = [], policy_at(row, view, needs)
    if policy is not NumaTopologyPolicy.NONE:
        parts += _of_zones(trial, needs.amounts, policy, _free_devices(view, needs.amounts))
    binding = trial.request.binding
    if binding is not None and not parts and trial.node.layout is not None:
        parts.append(_of_cpus(trial, binding))
    return "; ".join(parts)


def smaller_for_numa(view: Snapshot, needs: NumaRequirements) -> list[dict[str, int]]:
    """Return the free amounts of the NUMA nodes, most CPU first, if one must suffice."""
    trial = _trial(view, needs)
    policy = policy_at(int(view.row_numbers[0]), view, needs)
    if trial is None or policy is not NumaTopologyPolicy.SINGLE_NUMA_NODE:
        return []
    smaller = []
    devices = _whole_devices(view, needs.amounts)
    for zone, amounts in sorted(trial.available.items(), key=lambda one: -one[1].get(CPU, 0)):
        cpus = amounts.get(CPU, 0)
        whole = cpus // MILLI * MILLI if trial.request.binding is not None else cpus
        smaller.append(
            {
                name: min(amount, whole if name == CPU else amounts[name])
                for name, amount in needs.amounts.items()
                if name in amounts
            }
            | devices.get(zone, {})
        )
    return smaller


def _whole_devices(view: Snapshot, amounts: Mapping[str, int]) -> dict[int, dict[str, int]]:
    """Return the requests for all free whole devices of each NUMA node that has too few."""
    by_zone: dict[int, dict[str, int]] = {}
    for zone, kind, free, _ in _free_by_zone(view, amounts):
        for name in names_of(kind) & amounts.keys() - _NOT_COUNTED:
            each = WHOLE_DEVICE if name in _PERCENTAGES else 1
            if 0 < free * each < amounts[name]:
                by_zone.setdefault(zone, {})[name] = free * each
    return by_zone


def _free_by_zone(
    view: Snapshot, amounts: Mapping[str, int]
) -> Iterator[tuple[int, DeviceType, int, int]]:
    """Yield NUMA nodes with the numbers of free and of partly free devices of requested types."""
    row = int(view.row_numbers[0])
    report = view.devices.reports.get(row)
    for kind in CALLED:
        group = report.model.group(kind) if report is not None else None
        if report is None or group is None or names_of(kind).isdisjoint(amounts):
            continue
        columns, healthy = view.devices.columns[kind], report.healthy.get(kind, 0)
        for zone in group.by_numa:
            minors = [d.minor for d in group.devices if d.numa == zone and healthy >> d.minor & 1]
            left, total = columns.left[row, minors], columns.total[row, minors]
            free = int((left >= total).all(axis=1).sum())
            parts = int(((left > 0) & (total > 0)).any(axis=1).sum()) - free
            yield zone, kind, free, parts


def size_for_numa(view: Snapshot, needs: NumaRequirements) -> str:
    """Return what one NUMA node must have; empty unless the policy needs a single one."""
    trial = _trial(view, needs)
    policy = policy_at(int(view.row_numbers[0]), view, needs)
    if trial is None or policy is not NumaTopologyPolicy.SINGLE_NUMA_NODE:
        return ""
    zones = trial.node.zones.values()
    most = {
        name: max(amounts[name] for amounts in zones if name in amounts)
        for name in {name for amounts in trial.node.zones.values() for name in amounts}
    }
    return " and ".join(
        f"{_amount(name, amount)} {_OF[policy]} (its largest has {_amount(name, most[name])})"
        for name, amount in needs.amounts.items()
        if name in most and amount > most[name]
    )


def weaker_policies(it: Pod) -> Iterator[tuple[str, Pod]]:
    """Yield the pod with each weaker policy in its annotations, the strictest first."""
    meta = it.metadata
    try:
        own, binding = NUMA_TOPOLOGY_SPEC.read(meta), RESOURCE_SPEC.read(meta)
    except InputError:
        return
    own = own or NumaTopologySpec()
    stated = own.numa_topology_policy
    strictness = _BY_STRICTNESS.index(stated) if stated in _BY_STRICTNESS else len(_BY_STRICTNESS)
    for policy in _BY_STRICTNESS[strictness + 1 :]:
        changed = NUMA_TOPOLOGY_SPEC.entry(replace(own, numa_topology_policy=policy))
        text = (
            f"set numaTopologyPolicy {policy} instead of {stated}"
            if policy
            else f"remove numaTopologyPolicy {stated}"
        )
        text += f" in its annotation {NUMA_TOPOLOGY_SPEC.key}"
        yield text, _annotated(it, changed)
    required = binding.required_cpu_bind_policy if binding is not None else ""
    if binding is not None and required:
        preferred = replace(
            binding, required_cpu_bind_policy="", preferred_cpu_bind_policy=required
        )
        text = (
            f"set preferredCPUBindPolicy instead of requiredCPUBindPolicy {required} in its "
            f"annotation {RESOURCE_SPEC.key}"
        )
        yield text, _annotated(it, RESOURCE_SPEC.entry(preferred))


def whole_cpus(it: Pod) -> Iterator[tuple[str, Pod]]:
    """Yield the pod with the next smaller and the next larger whole number of CPUs."""
    wanted = pod_requests(it.spec).get(CPU, 0)
    for amount in (wanted // MILLI * MILLI, -(-wanted // MILLI) * MILLI):
        spec = (
            asking_at_most(it.spec, {CPU: amount})
            if amount < wanted
            else asking_at_least(it.spec, CPU, amount)
        )
        if spec is not None:
            text = f"request {quantity(CPU, amount)} of cpu instead of {quantity(CPU, wanted)}"
            yield text, replace(it, spec=spec)


def _annotated(it: Pod, entry: Mapping[str, str]) -> Pod:
    annotations = {**it.metadata.annotations, **entry}
    return replace(it, metadata=replace(it.metadata, annotations=annotations))


def _trial(view: Snapshot, needs: NumaRequirements) -> NumaTrial | None:
    row = int(view.row_numbers[0])
    request = request_at(row, view, needs)
    if request is None:
        return None
    return NumaTrial(view.numa.node(row, pack=False), request, reusable_for_pod(view))


def _of_zones(
    trial: NumaTrial,
    amounts: Mapping[str, int],
    policy: NumaTopologyPolicy,
    devices: Mapping[int, Sequence[str]],
) -> list[str]:
    """Return each resource that no set of NUMA nodes allowed by the policy has enough of."""
    parts, zones = [], trial.available
    for name, amount in amounts.items():
        left = [zone_amounts[name] for zone_amounts in zones.values() if name in zone_amounts]
        if not left:
            continue
        most, of = max(left), _OF.get(policy, "of its NUMA nodes")
        if policy is NumaTopologyPolicy.SINGLE_NUMA_NODE and amount > most:
            parts.append(
                f"requests {_amount(name, amount)} {of}; the largest free amount of one is "
                f"{_amount(name, most)}"
            )
        elif amount > sum(left):
            parts.append(
                f"requests {_amount(name, amount)} {of}; all together have "
                f"{_amount(name, sum(left))} free"
            )
        elif policy is NumaTopologyPolicy.RESTRICTED and amount > most:
            fewest = _fewest(
                [zone_amounts.get(name, 0) for zone_amounts in trial.node.zones.values()], amount
            )
            parts.append(
                f"requests {_amount(name, amount)} of {pluralized(fewest, 'NUMA node')}, "
                f"the fewest that hold it when empty; they have "
                f"{', '.join(_amount(name, each) for each in left)} free"
            )
    if not parts:
        listed = " and ".join(_amount(name, n) for name, n in amounts.items() if name != "pods")
        rows = {
            zone: [_amount(name, n) for name, n in zone_amounts.items() if name in amounts]
            for zone, zone_amounts in zones.items()
        }
        free = "; ".join(
            f"{zone}: {', '.join([*row, *devices.get(zone, ())])}"
            for zone, row in sorted(rows.items())
        )
        parts.append(
            f"requests {listed} {_OF.get(policy, '')}, devices included; free by NUMA node: {free}"
        )
    return parts


def _free_devices(view: Snapshot, amounts: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the number of free devices of the requested types, by NUMA node."""
    by_zone: dict[int, list[str]] = {}
    for zone, kind, free, parts in _free_by_zone(view, amounts):
        text = pluralized(free, CALLED[kind])
        text += f" and parts of {parts}" if parts else ""
        by_zone.setdefault(zone, []).append(text)
    return by_zone


def _of_cpus(trial: NumaTrial, binding: CpuBinding) -> str:
    free = trial.node.free_cpus(trial.reusable).cpus.bit_count()
    policy = f" by the policy {binding.policy}" if binding.required else ""
    return f"requests {binding.count} exclusive CPUs{policy}; {free} are free"


def _fewest(capacities: list[int], amount: int) -> int:
    """Return the least number of empty NUMA nodes that hold an amount."""
    total = 0
    for count, each in enumerate(sorted(capacities, reverse=True), start=1):
        total += each
        if total >= amount:
            return count
    return len(capacities)


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"{quantity(name, amount)} CPU{'' if amount == MILLI else 's'}"
    return f"{quantity(name, amount)} of {name}"
