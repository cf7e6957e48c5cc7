"""Pods by node, sums of their usage, and the progress of their work.

Rows are nodes, columns are usage profiles.  Amounts are milli-CPU and bytes.
"""

from collections.abc import Sequence
from enum import Enum, auto

import numpy as np

from koordinator.api.labels import POD_QOS_CLASS
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.qos import PriorityBand, QosClass, band_of, qos_of
from koordinator.api.resource_names import BAND_RESOURCES, CPU, MEMORY
from koordinator.domain.amounts import canonical
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.arrays import FloatArray, IntArray, extended
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.usage import UsageKinds
from koordinator.simulator.world import SimulatedPod

_MILLI = 1000
#: Remaining work below this is a rounding error.
DONE_S = 1e-6
_MIN_SPEED = 1e-6  # of full speed; avoids a division by zero


class Tenant(Enum):
    """Group of consumers on a node."""

    SERVICES = auto()
    BEST_EFFORT = auto()  # pods
    YARN = auto()  # containers, best effort as well


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of a consumer on a node; ``column`` is its usage profile."""

    tenant: Tenant
    column: int
    cpu_milli: int
    memory_bytes: int


@dataclass(slots=True, eq=False)
class ResidentPod:
    """Running pod; ``began`` is the progress of the node's best-effort pods at its start."""

    run: SimulatedPod
    pod: Pod  # after admission
    column: int
    cpu_milli: int
    memory_bytes: int
    is_best_effort: bool
    band: PriorityBand
    qos: QosClass
    memory_in_use: Quantity
    since_s: float
    began: float = 0.0


@dataclass(frozen=True, slots=True)
class Loads:
    """Usage of services and demand of best effort by node: milli-CPU and bytes."""

    services_cpu: FloatArray
    best_effort_cpu: FloatArray  # demand
    services_memory: FloatArray
    best_effort_memory: FloatArray
    yarn_cpu: FloatArray  # YARN's part of the best-effort demand
    yarn_memory: FloatArray  # YARN's part of the best-effort usage


class Fleet:
    """Nodes with their running pods; ``noise`` is a factor for each node's usage."""

    def __init__(self, nodes: Sequence[Node], kinds: UsageKinds) -> None:
        self.kinds = kinds
        self.names = [node.metadata.name for node in nodes]
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.cpu = self._amounts(nodes, CPU)
        self.memory = self._amounts(nodes, MEMORY)
        self.residents: list[dict[str, ResidentPod]] = [{} for _ in nodes]
        self.noise = np.ones(len(nodes))
        self.best_effort_requested = np.zeros(len(nodes))  # milli-CPU
        self._cpu = {tenant: np.zeros((len(nodes), 0)) for tenant in Tenant}
        self._memory = {tenant: np.zeros((len(nodes), 0)) for tenant in Tenant}
        self._progress = np.zeros(len(nodes))  # seconds of full speed until ``_as_of_s``
        self._speed = np.ones(len(nodes))
        self._as_of_s = self._until_s = 0.0

    def add(self, run: SimulatedPod, pod: Pod, now_s: float) -> None:
        """Add a pod that starts its work."""
        band = band_of(pod)
        requests = pod_requests(pod.spec)
        names = BAND_RESOURCES.get(band, {})
        row = self.rows[run.node]
        column = self.kinds.column(run.submission.usage)
        memory_bytes = requests.get(names.get(MEMORY, MEMORY), requests.get(MEMORY, 0))
        in_use = int(memory_bytes * self.kinds.kinds[column].memory)
        resident = ResidentPod(
            run=run,
            pod=pod,
            column=column,
            cpu_milli=requests.get(names.get(CPU, CPU), requests.get(CPU, 0)),
            memory_bytes=memory_bytes,
            is_best_effort=is_best_effort(pod),
            band=band,
            qos=qos_of(pod),
            memory_in_use=Quantity.from_int(in_use, binary=True),
            since_s=now_s,
            began=self.progress(row, now_s),
        )
        self.residents[row][run.key] = resident
        self._count(row, resident, 1)

    def remove(self, run: SimulatedPod) -> ResidentPod | None:
        """Remove a pod; return None if it is unknown."""
        row = self.rows[run.node]
        resident = self.residents[row].pop(run.key, None)
        if resident is not None:
            self._count(row, resident, -1)
        return resident

    def loads(self, now_s: float) -> Loads:
        """Return the loads at a time, with the current noise."""
        self._widen()
        cpu, memory = self.kinds.cpu_shares(now_s), self.kinds.memory_shares()
        yarn_cpu, yarn_memory = self._cpu[Tenant.YARN] @ cpu, self._memory[Tenant.YARN] @ memory
        return Loads(
            services_cpu=np.minimum(self._cpu[Tenant.SERVICES] @ cpu * self.noise, self.cpu),
            best_effort_cpu=self._cpu[Tenant.BEST_EFFORT] @ cpu + yarn_cpu,
            services_memory=self._memory[Tenant.SERVICES] @ memory,
            best_effort_memory=self._memory[Tenant.BEST_EFFORT] @ memory + yarn_memory,
            yarn_cpu=yarn_cpu,
            yarn_memory=yarn_memory,
        )

    # -- progress ----------------------------------------------------------------------------

    def progress(self, row: int, now_s: float) -> float:
        """Return the progress of best effort on a node in seconds of full speed."""
        return float(self._progress[row] + self._speed[row] * (now_s - self._as_of_s))

    def worked_s(self, run: SimulatedPod, now_s: float) -> float:
        """Return the work that a pod has done, in seconds of full speed."""
        row = self.rows[run.node]
        resident = self.residents[row][run.key]
        if not resident.is_best_effort:
            return now_s - resident.since_s
        return self.progress(row, now_s) - resident.began

    def speed_of(self, run: SimulatedPod) -> float:
        """Return the current speed of a pod; 1 is full speed."""
        row = self.rows[run.node]
        is_best_effort = self.residents[row][run.key].is_best_effort
        return self.best_effort_speed(row) if is_best_effort else 1.0

    def set_speed(self, speed: FloatArray, now_s: float, until_s: float) -> None:
        """Set the speed of best effort on each node, as a share of full speed, until a time."""
        self._progress += self._speed * (now_s - self._as_of_s)
        self._speed, self._as_of_s, self._until_s = speed, now_s, until_s

    def may_end_in_s(self, left_s: float, speed: float, now_s: float) -> float:
        """Return the least time until work is done; 0 if it is.

        After the next change of speed full speed is assumed, the maximum.
        """
        if left_s <= DONE_S:
            return 0.0
        ends_s = left_s / max(speed, _MIN_SPEED)
        step_left_s = self._until_s - now_s
        return ends_s if ends_s <= step_left_s else max(left_s, step_left_s)

    def best_effort_speed(self, row: int) -> float:
        """Return the current speed of best effort on a node; 1 is full speed."""
        return float(self._speed[row])

    # -- sums --------------------------------------------------------------------------------

    def count(self, row: int, demand: Demand, sign: int) -> None:
        """Add (1) or remove (-1) a demand."""
        self._widen()
        self._cpu[demand.tenant][row, demand.column] += sign * demand.cpu_milli
        self._memory[demand.tenant][row, demand.column] += sign * demand.memory_bytes

    def _count(self, row: int, resident: ResidentPod, sign: int) -> None:
        tenant = Tenant.SERVICES
        if resident.is_best_effort:
            tenant = Tenant.BEST_EFFORT
            self.best_effort_requested[row] += sign * resident.cpu_milli
        demand = Demand(tenant, resident.column, resident.cpu_milli, resident.memory_bytes)
        self.count(row, demand, sign)

    def _widen(self) -> None:
        """Add the missing columns of new usage profiles."""
        for table in (self._cpu, self._memory):
            for key, sums in table.items():
                missing = len(self.kinds.kinds) - sums.shape[1]
                if missing:
                    table[key] = extended(sums, missing, axis=1)

    @staticmethod
    def _amounts(nodes: Sequence[Node], name: str) -> IntArray:
        return np.array([canonical(name, node.status.capacity[name]) for node in nodes], np.int64)


def is_best_effort(pod: Pod) -> bool:
    """Return whether a pod has the QoS class BE by its label."""
    return POD_QOS_CLASS in pod.metadata.labels and qos_of(pod) is QosClass.BE
