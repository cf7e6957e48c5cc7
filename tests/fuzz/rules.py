"""Rules that hold whenever the scheduler is idle, checked by the objects of the cluster.

Sums are computed here from manifests; the scheduler's own are compared with them last.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from tests.fuzz.late_events import FarCluster
from tests.fuzz.script import GANG, LAYERS, Script
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.watches import restarted

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.cycle import NodeChoice
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.loop import Scheduler
from koordinator.scheduler.queue import QueueState
from koordinator.scheduler.snapshot import ClusterState

USED = "scheduling.koordinator.sh/reservation-allocated"
NEEDS = "scheduling.koordinator.sh/reservation-affinity"
DEVICES = "scheduling.koordinator.sh/device-allocated"
CPUS = "scheduling.koordinator.sh/resource-status"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
HOSTNAME = "kubernetes.io/hostname"
PERCENT = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")


class BrokenRuleError(AssertionError):
    """Something that must not be."""


def hold(rule: bool, *details: object) -> None:
    """Raise BrokenRuleError unless the rule holds."""
    if not rule:
        raise BrokenRuleError(" ".join(str(one) for one in details))


class Witness:
    """Looks at one world after every step; remembers who was bound at the last look."""

    def __init__(self, cluster: FarCluster, script: Script) -> None:
        self.cluster, self.script = cluster, script
        self._before: dict[str, str] = {}  # uid -> node of the pods that were bound

    def check(self, scheduler: Scheduler) -> None:
        """Raise BrokenRuleError if something is wrong."""
        scheduler.validate()
        now = _Now(self.cluster)
        new = [p for p in now.running if p.metadata.uid not in self._before]
        check_amounts(now)
        check_devices(now)
        check_cpus(now)
        check_reservations(now)
        check_quotas(now, checks_parents=self.script.checks_parents)
        check_gangs(now, new)
        check_places(now, new)
        check_waiting(now, scheduler)
        check_kept(scheduler)
        check_same_after_restart(self.cluster, scheduler, self.script)
        self._before = {p.metadata.uid: p.spec.node_name for p in now.running}


class _Now:
    """The cluster as it is."""

    def __init__(self, cluster: FarCluster) -> None:
        self.nodes = {n.metadata.name: n for n in cluster.list(Node).items}
        self.pods = list(cluster.list(Pod).items)
        self.running = [
            p
            for p in self.pods
            if p.spec.node_name and p.status.phase not in ("Succeeded", "Failed")
        ]
        self.reservations = {
            r.metadata.uid: r
            for r in cluster.list(Reservation).items
            if r.status.phase == "Available"
        }
        self.every_reservation = {r.metadata.uid: r for r in cluster.list(Reservation).items}
        self.quotas = {q.metadata.name: q for q in cluster.list(ElasticQuota).items}
        self.groups = {g.metadata.name: g for g in cluster.list(PodGroup).items}
        self.topologies = {t.metadata.name: t for t in cluster.list(NodeResourceTopology).items}
        self.users: dict[str, list[Pod]] = defaultdict(list)
        for p in self.running:
            if uid := used_by(p):
                self.users[uid].append(p)


def used_by(pod: Pod) -> str:
    """Return the uid of the reservation in the pod's annotation."""
    text = pod.metadata.annotations.get(USED)
    return json.loads(text)["uid"] if text else ""


def amounts(given: Mapping[str, Quantity]) -> Counter[str]:
    """Return amounts as numbers: thousandths of CPUs, whole units of everything else."""
    return Counter({name: q.milli() if name == "cpu" else q.value() for name, q in given.items()})


def requests(pod: Pod) -> Counter[str]:
    """Return the requests of the only container."""
    return amounts(pod.spec.containers[0].resources.requests)


def added(many: Iterable[Counter[str]]) -> Counter[str]:
    """Return the sum."""
    total: Counter[str] = Counter()
    for one in many:
        total.update(one)
    return total


# -- nodes -----------------------------------------------------------------------------------


def check_amounts(now: _Now) -> None:
    """No node gives more than it has; the unused part of a reservation counts."""
    for name, node in now.nodes.items():
        there = amounts(node.status.allocatable)
        pods = [p for p in now.running if p.spec.node_name == name]
        reserved = [r for r in now.reservations.values() if r.status.node_name == name]
        taken = added([requests(p) for p in pods])
        for each in reserved:
            used = added([requests(p) for p in now.users[each.metadata.uid]])
            for resource, amount in amounts(each.status.allocatable).items():
                taken[resource] += max(amount - used[resource], 0)
        taken["pods"] = len(pods)
        for resource, amount in taken.items():
            hold(
                amount <= there[resource], f"node {name}: {amount} of {there[resource]} {resource}"
            )


def check_devices(now: _Now) -> None:
    """No part of a device, and no virtual function, is given twice."""
    for name in now.nodes:
        left: Counter[tuple[str, int, str]] = Counter()
        functions: Counter[str] = Counter()
        for p in now.running:
            if p.spec.node_name == name:
                left.update(device_parts(p.metadata))
                functions.update(virtual_functions(p.metadata))
        for uid, each in now.reservations.items():
            if each.status.node_name == name:
                used: Counter[tuple[str, int, str]] = Counter()
                for p in now.users[uid]:
                    used.update(device_parts(p.metadata))
                for part, amount in device_parts(each.metadata).items():
                    left[part] += max(amount - used[part], 0)
        for (kind, minor, resource), amount in left.items():
            if resource in PERCENT or resource == "koordinator.sh/rdma":
                hold(amount <= 100, f"node {name}: {amount} % of {resource} of {kind} {minor}")
        twice = [one for one, count in functions.items() if count > 1]
        hold(not twice, f"node {name}: virtual functions given twice: {twice}")


def device_parts(meta: ObjectMeta) -> Counter[tuple[str, int, str]]:
    """Return what an object holds, by type, minor and resource."""
    parts: Counter[tuple[str, int, str]] = Counter()
    for kind, devices in json.loads(meta.annotations.get(DEVICES, "{}")).items():
        for device in devices:
            for resource, amount in device["resources"].items():
                parts[kind, device["minor"], resource] += Quantity.parse(str(amount)).value()
    return parts


def virtual_functions(meta: ObjectMeta) -> list[str]:
    """Return the buses of the virtual functions that a pod holds."""
    return [
        function["busID"]
        for devices in json.loads(meta.annotations.get(DEVICES, "{}")).values()
        for device in devices
        for function in (device.get("extension") or {}).get("vfs", ())
    ]


def check_cpus(now: _Now) -> None:
    """No CPU is bound to two pods, and NUMA nodes give no more than they have."""
    for name in now.nodes:
        owner: dict[int, str] = {}
        given: Counter[tuple[int, str]] = Counter()
        for p in now.running:
            if p.spec.node_name != name:
                continue
            allocation = json.loads(p.metadata.annotations.get(CPUS, "{}"))
            for cpu in cpu_numbers(allocation.get("cpuset", "")):
                hold(cpu not in owner, f"node {name}: CPU {cpu} of {owner.get(cpu)} and {p.key}")
                owner[cpu] = p.key
            for zone in allocation.get("numaNodeResources", ()):
                for resource, amount in zone.get("resources", {}).items():
                    parsed = Quantity.parse(str(amount))
                    number = parsed.milli() if resource == "cpu" else parsed.value()
                    given[zone["node"], resource] += number
        topology = now.topologies.get(name)
        for index, zone in enumerate(topology.zones if topology is not None else ()):
            for info in zone.resources:
                there = info.allocatable.milli() if info.name == "cpu" else info.allocatable.value()
                amount = given[index, info.name]
                hold(
                    amount <= there, f"node {name}: {amount} of {there} {info.name} of {zone.name}"
                )


def cpu_numbers(text: str) -> list[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


# -- reservations ----------------------------------------------------------------------------


def check_reservations(now: _Now) -> None:
    """Only owners use what is reserved, where it is, and no more than its policy allows."""
    for uid, users in now.users.items():
        each = now.every_reservation.get(uid)
        if each is None:
            continue
        name = each.metadata.name
        for p in users:
            hold(p.spec.node_name == each.status.node_name, f"{p.key} uses {name} of another node")
            hold(is_owner(each, p), f"{p.key} uses {name} and is no owner")
        once = each.spec.allocate_once and not each.spec.pre_allocation
        hold(not once or len(users) <= 1, f"{name} is used by {len(users)} pods")
        if each.spec.allocate_policy == "Restricted" and not each.spec.pre_allocation:
            used = added([requests(p) for p in users])
            for resource, amount in amounts(each.status.allocatable).items():
                hold(used[resource] <= amount, f"{name}: {used[resource]} of {amount} {resource}")
    for p in now.running:
        if NEEDS in p.metadata.annotations:
            hold(bool(used_by(p)), f"{p.key} needs a reservation and uses none")


def is_owner(reservation: Reservation, pod: Pod) -> bool:
    """Return whether an owner's labels match the pod."""
    return any(
        owner.label_selector is not None
        and all(
            pod.metadata.labels.get(key) == value
            for key, value in owner.label_selector.match_labels.items()
        )
        for owner in reservation.spec.owners
    )


# -- jobs ------------------------------------------------------------------------------------


def check_quotas(now: _Now, *, checks_parents: bool) -> None:
    """No quota uses more than its max; nor do its children together, if they are checked."""
    of: dict[str, list[Counter[str]]] = defaultdict(list)
    for p in now.running:
        name = p.metadata.labels.get(PREFIX + "name", "")
        while name in now.quotas:
            of[name].append(requests(p))
            parent = now.quotas[name].metadata.labels.get(PREFIX + "parent", "")
            name = parent if checks_parents else ""
    for name, each in now.quotas.items():
        used = added(of[name])
        for resource, most in amounts(each.spec.max).items():
            hold(used[resource] <= most, f"quota {name}: {used[resource]} of {most} {resource}")


def check_gangs(now: _Now, new: list[Pod]) -> None:
    """Every gang starts with enough members, together with its group and in its domain."""
    members: dict[str, list[Pod]] = defaultdict(list)
    for p in now.running:
        members[p.metadata.labels.get(POD_GROUP, "")].append(p)
    uids = {p.metadata.uid for p in new}
    for name, group in now.groups.items():
        running = members[name]
        if not running:
            continue
        annotations = group.metadata.annotations
        together = [
            one.partition("/")[2]
            for one in json.loads(annotations.get(GANG + "groups", f'["default/{name}"]'))
        ]
        all_members = [p for one in together for p in members[one]]
        if all(p.metadata.uid in uids for p in all_members):  # it has just started
            for one in together:
                least = now.groups[one].spec.min_member
                hold(
                    len(members[one]) >= least,
                    f"gang {one}: {len(members[one])} of {least} started",
                )
        rules = json.loads(annotations.get(GANG + "network-topology-spec", "{}")).get(
            "gatherStrategy", []
        )
        for rule in rules:
            has_network = self_configured(now)
            if rule["strategy"] == "MustGather" and has_network:
                labels = list(LAYERS.values())
                depth = labels.index(LAYERS[rule["layer"]]) + 1
                domains = {
                    tuple(
                        now.nodes[p.spec.node_name].metadata.labels[key] for key in labels[:depth]
                    )
                    for p in running
                    if p.spec.node_name in now.nodes
                }
                hold(len(domains) <= 1, f"gang {name}: {rule} and is in {domains}")


def self_configured(now: _Now) -> bool:
    """Return whether all nodes are part of the network."""
    return all(label in n.metadata.labels for n in now.nodes.values() for label in LAYERS.values())


def check_places(now: _Now, new: list[Pod]) -> None:
    """Every pod fits the node on which it runs."""
    for p in new:
        node = now.nodes.get(p.spec.node_name)
        if node is None:
            continue
        hold(not node.spec.unschedulable, f"{p.key} came to {p.spec.node_name}, which is cordoned")
        for key, value in p.spec.node_selector.items():
            hold(node.metadata.labels.get(key) == value, f"{p.key} came to a node without {key}")
        tolerated = {toleration.key for toleration in p.spec.tolerations}
        for taint in node.spec.taints:
            hold(taint.key in tolerated, f"{p.key} does not tolerate {taint.key}")
        affinity = p.spec.affinity
        if affinity is not None and affinity.pod_anti_affinity is not None:
            apps = Counter(
                q.metadata.labels["app"]
                for q in now.running
                if q.spec.node_name == p.spec.node_name
            )
            hold(apps[p.metadata.labels["app"]] <= 1, f"{p.key} is beside a pod that it avoids")


# -- who waits -------------------------------------------------------------------------------


def check_waiting(now: _Now, scheduler: Scheduler) -> None:
    """Every pending pod is in the queue and has a reason in its status."""
    for p in now.pods:
        over = p.status.phase in ("Succeeded", "Failed") or p.metadata.deletion_timestamp
        if p.spec.node_name or over:
            continue
        queued = scheduler.queue.get(p.key)
        hold(queued is not None, f"{p.key} waits and nobody knows")
        if queued is not None:
            hold(bool(queued.message), f"{p.key} is {queued.state} without a reason")


def check_kept(scheduler: Scheduler) -> None:
    """Every cached evaluation equals a fresh one; pending pods fit nowhere."""
    nominated = bool(scheduler.nominator.nodes())
    for queued in scheduler.queue.pods(QueueState.UNSCHEDULABLE):
        cycle = scheduler.cycles[queued.pod.spec.scheduler_name]
        pod_class = scheduler.state.classes.of(queued.pod)
        card = cycle.scorecard(pod_class)
        kept = cycle._evaluator.of(pod_class)
        fits = np.zeros(len(kept.totals), bool)
        fits[card.feasible] = True
        if card.refusal is None:
            wrong = fits & (kept.totals == UNFIT)
            hold(
                not wrong.any(),
                f"{queued.key}: kept as unfit, fits from scratch: {wrong.nonzero()}",
            )
        was_filtered = queued.message.startswith("0/")  # else a reserve plugin refused a node
        alone = queued.run_key is not None
        if alone and was_filtered and not nominated and len(card.feasible):
            choice = cycle.choose(queued.pod, pod_class, {})
            hold(
                not isinstance(choice, NodeChoice), f"{queued.key} waits and fits: {queued.message}"
            )


def check_same_after_restart(cluster: FarCluster, scheduler: Scheduler, script: Script) -> None:
    """Check that a scheduler that restarts has the same state of every node."""
    clock = VirtualClock(scheduler.state.now_s)
    other = restarted(cluster, clock, script.configuration)
    with cluster.without_delay():
        other.step(limit=0)
    other.validate()
    ours, theirs = _known(scheduler.state), _known(other.state)
    for name in ours.keys() | theirs.keys():
        here, after = ours.get(name), theirs.get(name)
        hold(here == after, f"of node {name} this scheduler knows {here}, a new one {after}")


def _known(state: ClusterState) -> dict[str, object]:
    names = state.axis.names
    known: dict[str, object] = {}
    for name, row in state.nodes.rows.items():
        requested = {
            names[column]: int(state.nodes.requested[column, row])
            for column in range(len(names))
            if state.nodes.requested[column, row]
        }
        known[name] = (
            requested,
            sorted(p.key for p in state.pods.on_row[row].values()),
            {
                f"{kind} {place}": int(columns.left[row][place])
                for kind, columns in state.nodes.devices.columns.items()
                for place in zip(*columns.left[row].nonzero(), strict=True)
            },
        )
    return known
