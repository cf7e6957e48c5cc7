"""Explanations for nodes whose NUMA nodes or CPUs do not suffice."""

from collections.abc import Mapping, Sequence

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.api.resource_names import CPU
from koordinator.domain.devices.requests import CALLED, names_of
from koordinator.scheduler.diagnosis import quantity
from koordinator.scheduler.plugins.node_numa_resource.alignment import (
    held_for_pod,
    policy_at,
    request_at,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.numa.align import policy_on
from koordinator.scheduler.rules.numa.node import MILLI
from koordinator.scheduler.rules.numa.trial import NumaTrial
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.numa import POLICIES

#: NUMA nodes that a policy allows a pod to use.
_OF = {
    NumaTopologyPolicy.SINGLE_NUMA_NODE: "of one NUMA node",
    NumaTopologyPolicy.RESTRICTED: "of as few NUMA nodes as could hold it",
    NumaTopologyPolicy.BEST_EFFORT: "of its NUMA nodes",
}


def numa_in_words(view: Snapshot, needs: NumaRequirements) -> str:
    """Return the request for NUMA nodes and CPUs, and what the only row of the view has."""
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
    found = []
    for here in sorted(trial.available.values(), key=lambda one: -one.get(CPU, 0)):
        cpus = here.get(CPU, 0)
        whole = cpus // MILLI * MILLI if trial.request.binding is not None else cpus
        found.append(
            {
                name: min(amount, whole if name == CPU else here[name])
                for name, amount in needs.amounts.items()
                if name in here
            }
        )
    return found


def size_for_numa(view: Snapshot, needs: NumaRequirements) -> str:
    """Return what one NUMA node must have; empty unless the policy needs a single one."""
    trial = _trial(view, needs)
    policy = policy_at(int(view.row_numbers[0]), view, needs)
    if trial is None or policy is not NumaTopologyPolicy.SINGLE_NUMA_NODE:
        return ""
    zones = trial.node.zones.values()
    most = {name: max(here[name] for here in zones if name in here) for name in _reported(trial)}
    return " and ".join(
        f"{_amount(name, amount)} {_OF[policy]} (its largest has {_amount(name, most[name])})"
        for name, amount in needs.amounts.items()
        if name in most and amount > most[name]
    )


def _reported(trial: NumaTrial) -> set[str]:
    """Return the resources that some NUMA node reports."""
    return {name for here in trial.node.zones.values() for name in here}


def _trial(view: Snapshot, needs: NumaRequirements) -> NumaTrial | None:
    row = int(view.row_numbers[0])
    request = request_at(row, view, needs)
    if request is None:
        return None
    return NumaTrial(view.numa.node(row, pack=False), request, held_for_pod(view))


def _of_zones(
    trial: NumaTrial,
    amounts: Mapping[str, int],
    policy: NumaTopologyPolicy,
    devices: Mapping[int, Sequence[str]],
) -> list[str]:
    """Return each resource that no set of NUMA nodes allowed by the policy has enough of."""
    parts, zones = [], trial.available
    for name, amount in amounts.items():
        left = [here[name] for here in zones.values() if name in here]
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
            fewest = _fewest([here.get(name, 0) for here in trial.node.zones.values()], amount)
            parts.append(
                f"requests {_amount(name, amount)} of {fewest} NUMA node"
                f"{'' if fewest == 1 else 's'}, the fewest that hold it when empty; they have "
                f"{', '.join(_amount(name, each) for each in left)} free"
            )
    if not parts:
        listed = " and ".join(_amount(name, n) for name, n in amounts.items() if name != "pods")
        rows = {
            zone: [_amount(name, n) for name, n in here.items() if name in amounts]
            for zone, here in zones.items()
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
    found: dict[int, list[str]] = {}
    row = int(view.row_numbers[0])
    report = view.devices.reports.get(row)
    for kind, called in CALLED.items():
        group = report.model.group(kind) if report is not None else None
        if report is None or group is None or names_of(kind).isdisjoint(amounts):
            continue
        columns, healthy = view.devices.columns[kind], report.healthy.get(kind, 0)
        for zone in group.by_numa:
            here = [d.minor for d in group.devices if d.numa == zone and healthy >> d.minor & 1]
            left, total = columns.left[row, here], columns.total[row, here]
            free = int((left >= total).all(axis=1).sum())
            parts = int(((left > 0) & (total > 0)).any(axis=1).sum()) - free
            text = f"{free} {called}{'' if free == 1 else 's'}"
            text += f" and parts of {parts}" if parts else ""
            found.setdefault(zone, []).append(text)
    return found


def _of_cpus(trial: NumaTrial, binding: CpuBinding) -> str:
    free = trial.node.free_cpus(trial.reusable).cpus.bit_count()
    policy = f" by the policy {binding.policy}" if binding.required else ""
    return f"requests {binding.count} exclusive CPUs{policy}; {free} are free"


def _fewest(there: list[int], amount: int) -> int:
    """Return the least number of empty NUMA nodes that hold an amount."""
    total = 0
    for count, each in enumerate(sorted(there, reverse=True), start=1):
        total += each
        if total >= amount:
            return count
    return len(there)


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"{quantity(name, amount)} CPU{'' if amount == MILLI else 's'}"
    return f"{quantity(name, amount)} of {name}"
