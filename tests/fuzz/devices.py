"""Random worlds of devices: nothing of them is ever given twice.

``python -m tests.fuzz.devices [--worlds N] [--seed FIRST]`` plays worlds in which pods, claims,
slices, classes, reports and nodes come and go in any order, schedulers restart, events come
late, and requests and answers get lost.  What was given is added up from what the cluster has
stored, by nothing that the scheduler uses.  At the end a scheduler that restarts sees the same
in use as the one that was there; and after all pods are deleted, no device is in use.

In crowded worlds pods have priorities, gangs, quotas and reservations as well.
"""

import argparse
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.equipped_nodes import CORE, MEMORY, RATIO, machine
from tests.fuzz.late_events import FarCluster
from tests.reservations import reservation
from tests.unit.domain.quota.quotas import PREFIX, quota
from tests.worlds import START_S, configuration, made, node, pod

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.annotations.reservation import ALLOCATED as FROM_RESERVATION
from koordinator.api.device import Device
from koordinator.api.dynamic_resources import (
    DEVICE_CLASS_RESOURCES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.labels import GPU_VENDOR, GpuVendor
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.cluster.memory.server import EndedBinds
from koordinator.cluster.port import Binding
from koordinator.domain.dynamic_resources.allocation import is_reserved_for
from koordinator.domain.dynamic_resources.allocator import allocate
from koordinator.domain.dynamic_resources.extended_resources import owner_of
from koordinator.domain.dynamic_resources.node_gpus import DRIVER as GPUS
from koordinator.domain.dynamic_resources.shares import DevicesInUse
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.foundation.quantity import NANOS
from koordinator.koordlet.report.gpu_slices import gpu_slices, renewed
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.loop import Scheduler, SchedulerOptions
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims, read_claims
from koordinator.scheduler.plugins.dynamic_resources.verdicts import (
    VerdictTable,
    verdict_of,
    verdict_table,
)
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState, Snapshot
from koordinator.simulator.device_claims import DeviceClaimController
from koordinator.simulator.embedded import DEFAULT_ADMISSION

V1 = "resource.k8s.io/v1"
PARTS, NET = "parts.example.com", "net.example.com"
CONFIG = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})
CROWDED = configuration(
    plugins={
        "multiPoint": {
            "enabled": [
                {"name": name}
                for name in ("DeviceShare", "Reservation", "Coscheduling", "ElasticQuota")
            ]
        },
        "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
    },
    pluginConfig=[{"name": "Coscheduling", "args": {"enablePreemption": True}}],
)
GROUP = "pod-group.scheduling.sigs.k8s.io"
DEVICE_GATES = (
    "DRAPartitionableDevices",
    "DRAConsumableCapacity",
    "DRADeviceTaints",
    "DRADeviceBindingConditions",
    "DRAExtendedResource",
)
PART = "example.com/part"  # extended resources: one that the node a has, too, and others
EXTENDED = (PART, PART, f"{DEVICE_CLASS_RESOURCES}gpu", f"{DEVICE_CLASS_RESOURCES}net")
PLUGGED = 2  # of the one, on that node
NVIDIA: JsonObject = {"labels": {GPU_VENDOR: GpuVendor.NVIDIA.value}}
GPUS_PER_NODE, NET_CAPACITY, COUNTED = 3, 10, 4
REQUESTS: tuple[dict[str, Any], ...] = (
    {"koordinator.sh/gpu": 100},
    {"koordinator.sh/gpu": 200},
    {"koordinator.sh/gpu": 50},
    {CORE: 30, RATIO: 30},
    {CORE: 20, MEMORY: "8Gi"},
)
PART_SIZES = {"whole": 4, "half-0": 2, "half-1": 2, "q-0": 1, "q-1": 1, "q-2": 1, "q-3": 1}


class LossyCluster:
    """Passes everything on; of writes a request is lost now and then, or its answer."""

    def __init__(self, cluster: FarCluster, draw: random.Random, share: float) -> None:
        self._cluster, self._draw, self._share = cluster, draw, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def patch(self, kind: Any, *args: Any, **more: Any) -> Any:
        """Lose the request, the answer or nothing."""
        fate = self._draw.random()
        if fate < self._share / 2:
            raise ClusterError("the request was lost")
        done = self._cluster.patch(kind, *args, **more)
        if fate < self._share:
            raise ClusterError("the answer was lost")
        return done

    def create(self, obj: Any) -> Any:
        """Lose the request, the answer or nothing."""
        fate = self._draw.random()
        if fate < self._share / 2:
            raise ClusterError("the request was lost")
        done = self._cluster.create(obj)
        if fate < self._share:
            raise ClusterError("the answer was lost")
        return done

    def bind(self, bindings: Sequence[Binding]) -> EndedBinds:
        """Lose requests and answers; what is not sent is bound to nothing."""
        results: list[ClusterError | None] = []
        for each in bindings:
            fate = self._draw.random()
            if fate < self._share / 2:
                results.append(ClusterError("the request was lost"))
                continue
            (result,) = self._cluster.bind([each]).results()
            lost = ClusterError("the answer was lost") if fate < self._share else None
            results.append(lost or result)
        return EndedBinds(results)


@dataclass
class DeviceWorld:
    """One world.  ``step`` executes an event, and checks the allocations."""

    seed: int
    draw: random.Random = field(init=False)
    made: int = 0

    def __post_init__(self) -> None:
        """Begin with nodes, devices and classes."""
        draw = self.draw = random.Random(self.seed)
        on = [name for name in DEVICE_GATES if draw.random() < 0.7]
        self.gates = FeatureGates.parse(",".join(f"{name}=true" for name in on))
        self.shares = draw.random() < 0.6
        self.lost = draw.choice((0.0, 0.2, 0.5))
        self.is_crowded = draw.random() < 0.5
        self.clock = VirtualClock(START_S)
        self.cluster = FarCluster(
            self.clock, admission=DEFAULT_ADMISSION, immediate_pod_deletion=True
        )
        self.controller = DeviceClaimController(self.cluster)
        self.cluster.draw = draw if draw.random() < 0.7 else None
        self.generations: Counter[str] = Counter()
        self.put(
            *(
                each
                for name in ("a", "b")
                for each in machine(name, gpus=GPUS_PER_NODE, device=NVIDIA)
            )
        )
        self.put(node("c"), *(made("DeviceClass", name, V1, spec={}) for name in ("any", "gone")))
        self.put(*(_class(name, driver) for name, driver in _CLASSES.items()))
        self.put(*(_template(draw, f"t{i}") for i in range(3)))
        plugged = {"status": {"allocatable": {PART: str(PLUGGED)}}}
        self.cluster.patch(Node, "a", "", plugged, "status")
        if self.is_crowded:
            most = {"cpu": 24, "memory": "64Gi"}
            self.put(quota("q0", most=most), quota("q1", most=most, least={"cpu": 8}))
        for name in ("a", "b"):
            self.offer_gpus(name)
        self.offer(PARTS, "c", _parts(), nodeName="c", sharedCounters=_COUNTERS)
        self.offer(NET, "net", _net(), allNodes=True)
        self.scheduler = self.started()

    def started(self) -> Scheduler:
        """Return a scheduler that knows nothing yet."""
        state = ClusterState()
        config = CROWDED if self.is_crowded else CONFIG
        profiles = build_profiles(config, state.axis, gates=self.gates).profiles
        options = SchedulerOptions().with_gates(self.gates)
        with self.cluster.without_delay():
            scheduler = build_scheduler(
                self.cluster, self.clock, profiles, state, WATCHED, options=options
            )
        lossy: Any = LossyCluster(self.cluster, self.draw, self.lost)
        scheduler.handle.binder._cluster = lossy
        return scheduler

    def put(self, *objects: KubeObject) -> None:
        """Store objects."""
        self.cluster.load(list(objects), admit=True)

    # -- what is offered ---------------------------------------------------------------------

    def offer(self, driver: str, pool: str, devices: list[dict[str, Any]], **spec: Any) -> None:
        """Publish a pool again, in one or two slices, the later one perhaps missing."""
        self.generations[pool] += self.draw.randint(0, 1)
        cut = self.draw.choice((0, 0, self.draw.randint(0, len(devices))))
        groups = [devices[:cut], devices[cut:]] if cut else [devices]
        count = len(groups) + (self.draw.random() < 0.1)
        about = {"name": pool, "generation": self.generations[pool], "resourceSliceCount": count}
        for index in range(2):
            with suppress(NotFoundError):
                self.cluster.delete(ResourceSlice, f"{pool}-{index}")
        for index, group in enumerate(groups):
            own = {"driver": driver, "pool": about, "devices": group, **spec}
            self.put(made("ResourceSlice", f"{pool}-{index}", V1, spec=own))

    def offer_gpus(self, name: str) -> None:
        """Publish the GPUs of a node as its agent does."""
        with suppress(NotFoundError):
            host, device = self.cluster.get(Node, name), self.cluster.get(Device, name)
            wanted = gpu_slices(host, device, shares=self.shares)
            known = [one for one in self.slices() if one.spec.pool.name == name]
            for one in renewed(wanted, known):
                with suppress(NotFoundError):
                    self.cluster.delete(ResourceSlice, one.metadata.name)
                self.put(one)

    def slices(self) -> Iterator[ResourceSlice]:
        """Yield what is offered."""
        return iter(self.cluster.list(ResourceSlice).items)

    def republish(self) -> None:
        """Publish an object again, perhaps without devices that claims have."""
        match self.draw.choice(("gpus", "parts", "net", "withdraw")):
            case "gpus":
                self.report(self.draw.choice("ab"))
            case "parts":
                devices = [part for part in _parts() if self.draw.random() < 0.8]
                self.draw.shuffle(devices)
                self.offer(PARTS, "c", devices, nodeName="c", sharedCounters=_COUNTERS)
            case "net":
                self.offer(NET, "net", _net(), allNodes=True)
            case "withdraw":
                pool = self.draw.choice([one.metadata.name for one in self.slices()] or [""])
                with suppress(NotFoundError):
                    self.cluster.delete(ResourceSlice, pool)

    def report(self, name: str) -> None:
        """Report the devices of a node again, some of them out of order, or not at all."""
        with suppress(NotFoundError):
            self.cluster.delete(Device, name)
        if self.draw.random() < 0.9:
            bad = [minor for minor in range(GPUS_PER_NODE) if self.draw.random() < 0.2]
            every = machine(name, gpus=GPUS_PER_NODE, unhealthy=bad, device=NVIDIA)
            self.put(*(one for one in every if isinstance(one, Device)))
        if self.draw.random() < 0.8:
            self.offer_gpus(name)

    # -- what happens ------------------------------------------------------------------------

    def step(self) -> None:
        """Execute one event, run the scheduler, and check."""
        happens = self.draw.choices(
            (self.ask, self.end, self.republish, self.restart, self.drop_claim, self.reclass,
             self.lose_node, self.wait, self.crowd, self.prepare),
            (8, 4, 2, 1, 1, 0.5, 0.5, 2, 5 if self.is_crowded else 0, 2),
        )[0]  # fmt: skip
        happens()
        for _ in range(self.draw.randint(0, 3)):
            self.scheduler.step()
            self.look()
            self.compare()
            if self.draw.random() < 0.7:
                self.control()

    def control(self) -> bool:
        """Make and release claims, by a controller that sees every event at once."""
        with self.cluster.without_delay():
            return self.controller.step()

    def crowd(self) -> None:
        """Add a gang, or reserve something, or take a reservation away."""
        self.made += 1
        name = f"g{self.made}"
        match self.draw.choice(("gang", "gang", "reservation", "unreserve")):
            case "gang":
                least = self.draw.randint(1, 3)
                api = "scheduling.sigs.k8s.io/v1alpha1"
                about = {"namespace": "default"}
                self.put(made("PodGroup", name, api, metadata=about, spec={"minMember": least}))
                for _ in range(least + self.draw.choice((-1, 0, 0, 1))):
                    self.ask(name)
            case "reservation":
                wanted = self.draw.choice(({}, {CORE: 50, RATIO: 50}, {CORE: 100, RATIO: 100}))
                reserved = reservation(name, self.draw.choice((1, 8)), requests=wanted, ttl="3000s")
                self.put(reserved)
            case "unreserve":
                known = self.cluster.list(Reservation).items
                if known:
                    self.cluster.delete(Reservation, self.draw.choice(known).metadata.name)

    def ask(self, group: str = "") -> None:
        """Add a pod that asks by requests, by claims, or both; perhaps one of a gang."""
        self.made += 1
        name, spec = f"p{self.made}", dict[str, Any]()
        if self.is_crowded:
            labels = {"app": self.draw.choice(("web", "batch"))} | ({GROUP: group} if group else {})
            if self.draw.random() < 0.5:
                labels[f"{PREFIX}name"] = self.draw.choice(("q0", "q1"))
            spec |= {"labels": labels, "priority": self.draw.choice((0, 10, 100))}
            spec["cpu"] = self.draw.choice((1, 4, 12))
        kind = self.draw.choice(
            ("requests", "claims", "claims", "template", "both", "extended", "extended", "mixed")
        )
        if kind in ("requests", "both"):
            spec["requests"] = self.draw.choice(REQUESTS)
        if kind in ("extended", "mixed"):
            spec["requests"] = {self.draw.choice(EXTENDED): self.draw.choice((1, 1, 2))}
        if kind in ("claims", "both", "mixed"):
            names = self.draw.sample(("c0", "c1", "c2"), self.draw.randint(1, 2))
            for each in names:
                with suppress(ClusterError):
                    self.put(made("ResourceClaim", each, V1, spec=_claim_spec(self.draw)))
            spec["resourceClaims"] = [{"name": n, "resourceClaimName": n} for n in names]
        elif kind == "template":
            template = self.draw.choice(("t0", "t1", "t2"))
            spec["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": template}]
        if self.draw.random() < 0.1:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self.draw.choice("abc")}
        self.put(pod(name, **spec))

    def end(self) -> None:
        """Delete a pod, or end it."""
        pods = self.cluster.list(Pod).items
        if not pods:
            return
        meta = self.draw.choice(pods).metadata
        if self.draw.random() < 0.5:
            self.cluster.delete(Pod, meta.name, meta.namespace)
        else:
            over = {"status": {"phase": "Succeeded"}}
            self.cluster.patch(Pod, meta.name, meta.namespace, over, subresource="status")

    def drop_claim(self) -> None:
        """Delete a claim; its finalizer keeps one that has devices."""
        claims = self.cluster.list(ResourceClaim).items
        if claims:
            self.cluster.delete(ResourceClaim, self.draw.choice(claims).metadata.name, "default")

    def prepare(self) -> None:
        """Report of some devices that they are ready, or never will be."""
        self.report_devices(0.5, ("Ready", "Ready", "Broken"))

    def report_devices(self, share: float, kinds: Sequence[str]) -> None:
        """Report one of these conditions of a share of the devices that others wait for."""
        for claim in self.cluster.list(ResourceClaim).items:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation else ():
                if result.binding_conditions and self.draw.random() < share:
                    kind = self.draw.choice(kinds)
                    about = {"driver": result.driver, "pool": result.pool, "device": result.device}
                    conditions = [{"type": kind, "status": "True", "reason": "Told"}]
                    over = {"status": {"devices": [{**about, "conditions": conditions}]}}
                    meta = claim.metadata
                    self.cluster.patch(ResourceClaim, meta.name, meta.namespace, over, "status")

    def reclass(self) -> None:
        """Take a class away, or bring it back."""
        try:
            self.cluster.delete(DeviceClass, "gone")
        except NotFoundError:
            spec = self.draw.choice(({}, {"extendedResourceName": PART}))
            self.put(made("DeviceClass", "gone", V1, spec=spec))

    def lose_node(self) -> None:
        """Delete a node and create it again."""
        name = self.draw.choice("abc")
        known = self.cluster.get(Node, name)
        self.cluster.delete(Node, name)
        self.scheduler.step()
        again = msgspec.structs.replace(known.metadata, resource_version="", uid="")
        self.put(msgspec.structs.replace(known, metadata=again))

    def restart(self) -> None:
        """Begin with a scheduler that knows nothing, perhaps without ending the other's work."""
        if self.draw.random() < 0.5:
            self.scheduler.finish()
        self.scheduler = self.started()

    def wait(self) -> None:
        """Advance the clock."""
        self.clock.advance_to(self.clock.now_s() + self.draw.choice((1, 20, 400)))

    # -- what was given ----------------------------------------------------------------------

    def _results(self) -> Iterator[tuple[tuple[str, str, str], Any]]:
        for claim in self.cluster.list(ResourceClaim).items:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation else ():
                yield (result.driver, result.pool, result.device), result

    def look(self) -> None:
        """Add up the allocations in the cluster.  Raises AssertionError if one exceeds a device."""
        given: Counter[tuple[str, ...]] = Counter()
        for device, result in self._results():
            consumed = {name: amount.nanos for name, amount in result.consumed_capacity.items()}
            if device[0] == NET and consumed:
                given[(*device, "slots")] += consumed["slots"]
                assert given[(*device, "slots")] <= NET_CAPACITY * NANOS, f"{device} is over-full"
                continue
            if device[0] == GPUS:
                self._charge_gpu(given, device, consumed)
                continue
            given[device] += 1
            assert given[device] <= 1, f"{device} is in two claims"
            if device[0] == PARTS:
                given["units",] += PART_SIZES[device[2]]
                assert given["units",] <= COUNTED, f"partitions take {given['units',]} units"
        pods = self.cluster.list(Pod).items
        for each in pods:
            if each.spec.node_name and each.status.phase not in ("Succeeded", "Failed"):
                self._look_for_devices(each)
                self._charge_requested(given, each.spec.node_name, each.metadata)
        users = {name for each in pods if (name := _reservation_of(each))}
        for each_reservation in self.cluster.list(Reservation).items:
            if (
                each_reservation.status.phase == "Available"
                and each_reservation.metadata.name not in users
            ):
                self._charge_requested(
                    given, each_reservation.status.node_name, each_reservation.metadata
                )

    def _look_for_devices(self, running: Pod) -> None:
        """Raise AssertionError if a pod runs without the devices of its extended resources."""
        requests = running.spec.containers[0].resources.requests
        count = sum(requests[name].value() for name in set(EXTENDED) if name in requests)
        if not count or (running.spec.node_name == "a" and PART in requests):
            return
        named = running.status.extended_resource_claim_status
        assert named is not None, f"{running.key} has no claim"
        claim = self.cluster.get(ResourceClaim, named.resource_claim_name, "default")
        assert owner_of(claim) == running.metadata.uid, f"{claim.key} is not of {running.key}"
        assert is_reserved_for(claim, running.metadata.uid), f"{running.key} may not use its claim"
        got = claim.status.allocation.devices.results if claim.status.allocation else ()
        assert len(got) == count, f"{running.key} has {len(got)} of {count} devices"

    def _charge_requested(
        self, given: Counter[tuple[str, ...]], node_name: str, meta: ObjectMeta
    ) -> None:
        for gpu in (ALLOCATED.read(meta) or {}).get("gpu", ()):
            has = {name: amount.nanos for name, amount in gpu.resources.items()}
            mine = {"core": has.get(CORE, 0), "memory": has.get(MEMORY, 0)}
            self._charge_gpu(given, (GPUS, node_name, f"gpu-{gpu.minor}"), mine)

    def compare(self) -> None:
        """Judge every node for every pod that waits, quickly and plainly: the answers are equal."""
        snapshot, table = tables(self.scheduler)
        groups = dynamic_resources(self.scheduler).groups
        for each, pod_class in list(self.scheduler.handle.state.unbound.values()):
            if not each.spec.resource_claims:
                continue
            claims = read_claims(snapshot, pod_class, groups)
            if not isinstance(claims, PodDeviceClaims) or not claims.pending:
                continue
            arguments = (claims.pending, len(snapshot), claims.avoids)
            quick, ledger = table.of_claims(*arguments), table.devices
            for row in range(len(snapshot)):
                pools = ledger.pools(row, claims.avoids)
                allocation = allocate(pools, claims.pending, ledger.use, ledger.gates)
                assert (quick.codes[row], quick.scores[row]) == verdict_of(allocation), (
                    row,
                    allocation,
                )
                assert table.allocation(claims.pending, row, claims.avoids) == allocation, row

    @staticmethod
    def _charge_gpu(
        given: Counter[tuple[str, ...]],
        device: tuple[str, str, str],
        has: Mapping[str, int],
    ) -> None:
        for name, most in (("core", 100), ("memory", 40 << 30)):
            given[(*device, name)] += has[name] if has else most * NANOS
            total = given[(*device, name)]
            assert total <= most * NANOS, f"{total / NANOS} of {most} {name} of {device} given"

    def rest(self) -> None:
        """Deliver everything that was written, and check the sums of the scheduler, too."""
        self.cluster.draw = None
        lossy: Any = self.scheduler.handle.binder._cluster
        lossy._share = 0.0
        for _ in range(60):
            self.report_devices(1.0, ("Ready",))
            moved = bool(self.scheduler.step()) | self.control()
            self.look()
            late = self.cluster.late
            if not moved and (late is None or not late.has_more):
                break
            self.clock.advance_to(self.clock.now_s() + 20)
        self.scheduler.validate()
        self.compare_with_a_new_one()

    def compare_with_a_new_one(self) -> None:
        """Raise AssertionError if a scheduler that begins now knows other devices in use."""
        restarted = self.started()
        restarted.step(0)
        (_, old), (_, new) = tables(self.scheduler), tables(restarted)
        assert old.devices.use == new.devices.use, f"{old.devices.use} or {new.devices.use}"
        restarted.finish()

    def clear(self) -> None:
        """Delete all pods.  Raises AssertionError if a device is still in use then."""
        for each in self.cluster.list(Pod).items:
            self.cluster.delete(Pod, each.metadata.name, each.metadata.namespace)
        for reserved in self.cluster.list(Reservation).items:
            self.cluster.delete(Reservation, reserved.metadata.name)
        self.rest()
        for claim in self.cluster.list(ResourceClaim).items:
            assert claim.status.allocation is None, f"{claim.key} keeps its devices"
            assert not claim.status.reserved_for, f"{claim.key} is kept for {claim.status}"
            assert not owner_of(claim), f"{claim.key} is of nobody"
        _, table = tables(self.scheduler)
        assert table.devices.use == DevicesInUse()


def _reservation_of(each: Pod) -> str:
    """Return the reservation that a pod has been given, and may leave unused."""
    used = FROM_RESERVATION.read(each.metadata)
    return used.name if used is not None else ""


def tables(scheduler: Scheduler) -> tuple[Snapshot, VerdictTable]:
    """Return the state that a scheduler sees, and its ledger of devices."""
    snapshot = Snapshot(scheduler.handle.state)
    return snapshot, verdict_table(snapshot, dynamic_resources(scheduler).gates)


def dynamic_resources(scheduler: Scheduler) -> Any:
    """Return the plugin DynamicResources of a scheduler."""
    filters = scheduler.cycles["default-scheduler"].profile.filter
    return next(a.plugin for a in filters if a.name == "DynamicResources")


_CLASSES = {"gpu": GPUS, "part": PARTS, "net": NET}
_COUNTERS = [{"name": "units", "counters": {"units": {"value": str(COUNTED)}}}]


def _class(name: str, driver: str) -> KubeObject:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    spec: dict[str, Any] = {"selectors": selectors}
    if driver == PARTS:
        spec["extendedResourceName"] = PART
    return made("DeviceClass", name, V1, spec=spec)


def _parts() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "consumesCounters": [
                {"counterSet": "units", "counters": {"units": {"value": str(size)}}}
            ],
        }
        for name, size in PART_SIZES.items()
    ]


def _net() -> list[dict[str, Any]]:
    policy = {"default": "3", "validRange": {"min": "1", "step": "2"}}
    capacity = {"slots": {"value": str(NET_CAPACITY), "requestPolicy": policy}}
    taint = [{"key": "k", "effect": "NoSchedule"}]
    return [
        {"name": "shared", "allowMultipleAllocations": True, "capacity": capacity},
        {
            "name": "own",
            "capacity": {"slots": {"value": str(NET_CAPACITY)}},
            "bindingConditions": ["Ready"],
            "bindingFailureConditions": ["Broken"],
        },
        {"name": "tainted", "taints": taint},
    ]


def _claim_spec(draw: random.Random) -> dict[str, Any]:
    """Return the spec of a claim of one or two requests."""
    return {"devices": {"requests": [_request(draw, f"r{i}") for i in range(draw.randint(1, 2))]}}


def _request(draw: random.Random, name: str) -> dict[str, Any]:
    if draw.random() < 0.2:
        options = [{"name": f"s{i}", **_exactly(draw)} for i in range(2)]
        return {"name": name, "firstAvailable": options}
    exactly = _exactly(draw)
    if draw.random() < 0.1:
        exactly |= {"allocationMode": "All"}
        exactly.pop("count", None)
    return {"name": name, "exactly": exactly}


def _exactly(draw: random.Random) -> dict[str, Any]:
    which = draw.choice(("gpu", "gpu", "part", "net", "any", "gone"))
    exactly: dict[str, Any] = {"deviceClassName": which, "count": draw.choice((1, 1, 2))}
    if which == "gpu" and draw.random() < 0.5:
        share = {"core": draw.choice(("30", "50")), "memory": draw.choice(("8Gi", "20Gi"))}
        exactly["capacity"] = {"requests": share}
    if which == "net" and draw.random() < 0.7:
        exactly["capacity"] = {"requests": {"slots": draw.choice(("1", "4", "10"))}}
    return exactly


def _template(draw: random.Random, name: str) -> KubeObject:
    return made("ResourceClaimTemplate", name, V1, spec={"spec": _claim_spec(draw)})


def play(seed: int, steps: int = 40) -> None:
    """Play a world.  Raises AssertionError where something was given twice."""
    world = DeviceWorld(seed)
    for _ in range(steps):
        world.step()
    world.rest()
    world.clear()


def main() -> int:
    """Play one seed after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.devices", description=__doc__)
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--most", type=int, default=5, help="findings after which to stop")
    given = parser.parse_args()
    logging.getLogger("koordinator").setLevel(logging.ERROR)
    began, findings = time.monotonic(), 0
    for seed in range(given.seed, given.seed + given.worlds):
        try:
            play(seed)
        except Exception as error:  # noqa: BLE001 -- whatever goes wrong is a finding
            findings += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            if findings >= given.most:
                break
    print(f"{given.worlds} worlds, {findings} findings, {time.monotonic() - began:.0f} s")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
