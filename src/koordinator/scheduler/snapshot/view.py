"""``Snapshot``: the view of the cluster that plugins get.

The whole cluster or some of its rows, with the same attributes.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from koordinator.api.core import Taint
from koordinator.domain.pod_affinity import PodScope
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.memo import MemoOwner, Memory
from koordinator.scheduler.rules.load.rules import LoadRules
from koordinator.scheduler.rules.usage_kernels import (
    Formula,
    Judgements,
    RowUsage,
    judge,
    judgements,
)
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.devices import DeviceTable
from koordinator.scheduler.snapshot.extended_resources import ExtendedResources
from koordinator.scheduler.snapshot.holds import Hold, HoldTable
from koordinator.scheduler.snapshot.load_ledger import LoadLedger
from koordinator.scheduler.snapshot.nodes import LabelIds, Network
from koordinator.scheduler.snapshot.numa import NumaTable
from koordinator.scheduler.snapshot.objects import ObjectTable
from koordinator.scheduler.snapshot.pods import PlacedPod, PodCounter, TermKind
from koordinator.scheduler.snapshot.restore import RestorableHolds, restoring, restoring_only
from koordinator.scheduler.snapshot.state import ClusterState

_NONE: IntArray = np.zeros(0, np.int64)
GPU_AMOUNTS = 3  # core, memory, memory ratio: the amounts that placement policies for GPUs read

Scalar = TypeVar("Scalar", bound=np.generic)
LedgerT = TypeVar("LedgerT")


class Snapshot:
    """Read-only rows of the cluster.  ``snapshot[rows]`` has the same attributes for those rows.

    Rows of deleted nodes are part of the arrays; results of plugins for them are ignored.
    ``cluster`` is the view of all rows, for plugins that declare ``Reads.CLUSTER``.
    """

    __slots__ = (
        "_added",
        "_allocatable",
        "_gpu_free",
        "_nominated",
        "_nonzero",
        "_requested",
        "_restorable",
        "_restored",
        "_state",
        "has_restorable",
        "memory",
        "rows",
    )

    def __init__(
        self,
        state: ClusterState,
        rows: IntArray | None = None,
        added: tuple[PodClass, IntArray] | None = None,
        restorable: RestorableHolds | None = None,
    ) -> None:
        self._state = state
        self._restorable = restorable
        self._nominated: Hold | None = None
        self._restored: tuple[Hold, ...] = ()
        self.rows = rows  # (n,) row numbers; None: all rows
        self.has_restorable = restorable is not None
        self._added = added
        self._allocatable: IntArray | None = None
        self._requested: IntArray | None = None
        self._nonzero: IntArray | None = None
        self._gpu_free: IntArray | None = None
        self.memory: Memory = {}  # of this view alone; see ``usage_version``

    def __len__(self) -> int:
        return len(self._state.nodes.names) if self.rows is None else len(self.rows)

    @property
    def uses_kernels(self) -> bool:
        """Whether compiled kernels pay, see ``NodeTable.uses_kernels``."""
        return self._state.nodes.uses_kernels

    def __getitem__(self, rows: IntArray) -> "Snapshot":
        """Return a view of some rows, which may repeat."""
        if self._added is not None:
            raise TypeError("a view of rows with added pods cannot be narrowed")
        rows = rows if self.rows is None else self.rows[rows]
        return Snapshot(self._state, rows, restorable=self._restorable)

    def after(self, pod_class: PodClass, times: IntArray) -> "Snapshot":
        """Return the view in which row i has taken ``times[i]`` more pods of that class.

        Only amounts and pod counts follow: the run of identical pods that this serves has no ports
        or devices.
        """
        return Snapshot(self._state, self.rows, (pod_class, times), self._restorable)

    @property
    def cluster(self) -> "Snapshot":
        """All rows."""
        if self.rows is None and self._added is None:
            return self
        return Snapshot(self._state, restorable=self._restorable)

    # -- reservations ------------------------------------------------------------------------

    @property
    def holds(self) -> HoldTable:
        """Amounts that reservations hold in the whole cluster; read only."""
        return self._state.holds

    @property
    def restorable(self) -> RestorableHolds | None:
        """The holds that the pod may use for which this view was made; None if there are none."""
        return self._restorable

    def with_restorable(self, restorable: RestorableHolds | None) -> "Snapshot":
        """Return the view for a pod that may use these holds."""
        return Snapshot(self._state, self.rows, restorable=restorable)

    def restoring(self) -> AbstractContextManager[None]:
        """Restore the holds on these rows that the pod may use."""
        if self._restorable is None:
            return nullcontext()
        return restoring(self._state, self._restorable.among(self.rows))

    def restoring_only(
        self, *holds: Hold, restricted: bool = False
    ) -> AbstractContextManager[None]:
        """Restore these holds of the one row of this view, and no others.

        ``restricted``: the pod may take devices and CPUs of these holds only.
        """
        row = int(self.row_numbers[0])
        return restoring_only(self._state, row, holds, self._restorable, restricted=restricted)

    @property
    def nominated(self) -> Hold | None:
        """The hold that the pod will use on the one row of this view, once that is decided."""
        return self._nominated

    @property
    def restored(self) -> tuple[Hold, ...]:
        """The holds of whose devices and CPUs the pod takes first, once that is decided."""
        return self._restored

    def nominating(self, hold: Hold | None, restored: tuple[Hold, ...] = ()) -> "Snapshot":
        """Return the view of the one row for a pod that will use the hold."""
        view = Snapshot(self._state, self.rows, restorable=self._restorable)
        view._nominated, view._restored = hold, restored
        return view

    # -- amounts -----------------------------------------------------------------------------

    @property
    def resources(self) -> list[str]:
        """Names of the columns."""
        return self._state.axis.names

    @property
    def allocatable(self) -> IntArray:
        """``(n, n_resources)``, canonical units."""
        if self._allocatable is None:
            self._allocatable = self._rows_of(self._state.nodes.allocatable)
        return self._allocatable

    @property
    def requested(self) -> IntArray:
        """``(n, n_resources)``: sum of the requests of the pods on the node.

        ``pods`` is their number.
        """
        if self._requested is None:
            amounts = self._rows_of(self._state.nodes.requested)
            if self._added is not None:
                pod_class, times = self._added
                amounts = amounts.copy()
                amounts[:, pod_class.columns] += times[:, None] * pod_class.amounts
            self._requested = amounts
        return self._requested

    @property
    def nonzero_requested(self) -> IntArray:
        """``(n, 2)``: cpu and memory requested, with defaults for containers without requests."""
        if self._nonzero is None:
            amounts = self._rows_of(self._state.nodes.nonzero)
            if self._added is not None:
                pod_class, times = self._added
                effective = pod_class.effective
                each = np.array((effective.nonzero_cpu, effective.nonzero_memory), np.int64)
                amounts = amounts + times[:, None] * each
            self._nonzero = amounts
        return self._nonzero

    @property
    def usage(self) -> RowUsage:
        """Requested amounts for compiled loops, which read only some of the rows."""
        nodes, times, each, each_nonzero = self._state.nodes, _NONE, _NONE, _NONE
        if self._added is not None:
            pod_class, times = self._added
            each = np.zeros(len(nodes.requested), np.int64)
            each[pod_class.columns] = pod_class.amounts
            effective = pod_class.effective
            each_nonzero = np.array((effective.nonzero_cpu, effective.nonzero_memory), np.int64)
        return RowUsage(
            nodes.requested,
            nodes.nonzero,
            nodes.allocatable,
            _NONE if self.rows is None else self.rows,
            times,
            each,
            each_nonzero,
        )

    def judge(
        self,
        judgements: Judgements,
        fits: BoolArray,
        total: IntArray,
        usage: RowUsage | None = None,
    ) -> None:
        """Set ``fits`` to False where amounts are not free; add formulas to ``total`` elsewhere.

        ``usage`` replaces the usage of the view.
        """
        kernel = judge.compiled if self.uses_kernels else judge.reference
        kernel(*(usage or self.usage), *judgements, fits, total)

    def score(self, formula: Formula, usage: RowUsage | None = None) -> IntArray:
        """Return ``(n,)``: the values of a formula; ``usage`` replaces the usage of the view."""
        total = np.zeros(len(self), np.int64)
        self.judge(judgements((), ((formula, 1),)), np.ones(len(self), bool), total, usage)
        return total

    def _rows_of(self, amounts: IntArray) -> IntArray:
        """Row-first view or selection of a resource-major array."""
        amounts = amounts[: len(self._state.axis)] if len(amounts) > 2 else amounts  # noqa: PLR2004 (the non-zero pair)
        if self.rows is None:
            out = amounts[:, : len(self._state.nodes)].T
        else:
            out = amounts.take(self.rows, axis=1).T
        out.flags.writeable = False
        return out

    # -- node facts --------------------------------------------------------------------------

    @property
    def node_names(self) -> list[str]:
        """Names by row."""
        names = self._state.nodes.names
        return names if self.rows is None else [names[row] for row in self.rows]

    @property
    def names(self) -> tuple[IntArray, dict[str, int]]:
        """``(n,)`` row numbers in the whole cluster, and the row number of each name."""
        nodes = self._state.nodes
        rows = np.arange(len(nodes)) if self.rows is None else self.rows
        return rows, nodes.rows

    @property
    def alive(self) -> BoolArray:
        """``(n,)``: the row's node exists."""
        return self._select(self._state.nodes.alive)

    @property
    def unschedulable(self) -> BoolArray:
        """``(n,)``: ``spec.unschedulable``."""
        return self._select(self._state.nodes.unschedulable)

    @property
    def taint_set(self) -> IntArray:
        """``(n,)``: index into ``taint_sets``."""
        return self._select(self._state.nodes.taint_set)

    @property
    def taint_sets(self) -> list[tuple[Taint, ...]]:
        """The distinct taint lists of the cluster."""
        return self._state.nodes.taint_sets

    def label(self, key: str) -> tuple[LabelIds, list[str]]:
        """Return ``(n,)`` indices into the list of values; -1 where the node lacks the label."""
        column = self._state.nodes.label(key)
        return self._select(column.ids), column.values

    @property
    def label_keys(self) -> Collection[str]:
        """The labels that some node of the cluster has."""
        return self._state.nodes.label_keys

    def annotation(self, key: str) -> tuple[LabelIds, list[str]]:
        """Return ``(n,)`` indices into the list of values; -1 where the node lacks it."""
        column = self._state.nodes.annotation(key)
        return self._select(column.ids), column.values

    @property
    def now_s(self) -> float:
        """The time of the snapshot, in seconds since the epoch.

        A plugin whose results depend on it has a ``version`` that changes with them.
        """
        return self._state.now_s

    def node_labels(self, row: int) -> Mapping[str, str]:
        """Return the labels of the node on a row of the whole cluster; none if it was deleted."""
        node = self._state.nodes.objects[row]
        return node.metadata.labels if node is not None else {}

    def image(self, name: str) -> tuple[BoolArray, int, int] | None:
        """Return where the image is ``(n,)``, its bytes, and on how many nodes of the cluster.

        None if nowhere.
        """
        image = self._state.nodes.images.get(name)
        if image is None:
            return None
        return self._select(image.present), image.size, int(image.present.sum())

    def declares(self, feature: str) -> BoolArray:
        """Return ``(n,)``: the kubelet declares one of the features that pods may need."""
        return self._select(self._state.nodes.declared[feature])

    @property
    def has_images(self) -> bool:
        """Whether any node reports an image: one of the ``traits``."""
        return bool(self._state.nodes.images)

    @property
    def node_count(self) -> int:
        """Nodes in the whole cluster."""
        return self._state.nodes.count

    @property
    def node_version(self) -> tuple[int, int]:
        """Changes whenever any fact of any node does."""
        return self._state.layout, self._state.node_log.position

    @property
    def device_version(self) -> int:
        """A value that changes whenever devices of a node are reported."""
        return self._state.devices

    @property
    def traits(self) -> Hashable:
        """Traits of the whole cluster, from which plugins decide whether they apply.

        It changes seldom: ``has_images``, ``has_load_reports``, ``has_pod_terms``,
        ``has_pod_owners`` and ``numa.traits``.
        """
        return self._state.traits

    @property
    def has_pod_terms(self) -> bool:
        """Whether a placed pod has, or lately had, (anti-)affinity terms: one of the ``traits``."""
        return self._state.pods.has_terms

    @property
    def has_pod_owners(self) -> bool:
        """Whether there are services or controllers that select pods: one of the ``traits``."""
        return self._state.has_pod_owners

    @property
    def shared(self) -> MemoOwner:
        """The state that all views share, as the key of memos about the whole cluster."""
        return self._state

    # -- what pods hold ----------------------------------------------------------------------

    def port_conflicts(self, port: tuple[str, str, int]) -> BoolArray:
        """Return ``(n,)``: some pod holds that (ip, protocol, number).

        0.0.0.0 clashes with every ip.
        """
        taken = np.zeros(len(self), bool)
        ip, protocol, number = port
        for (used_ip, used_protocol, used_number), counts in self._state.nodes.ports.items():
            same = (used_protocol, used_number) == (protocol, number)
            if same and (ip == used_ip or "0.0.0.0" in (ip, used_ip)):  # noqa: S104 (the wildcard of the API)
                taken |= self._select(counts) > 0
        return taken

    @property
    def gpu_total(self) -> IntArray:
        """``(n, n_minors, 3)``: core percent, memory bytes, memory percent of each healthy GPU."""
        return self._select(self._state.nodes.gpus.total)[:, :, :GPU_AMOUNTS]

    @property
    def gpu_free(self) -> IntArray:
        """``(n, n_minors, 3)``: what of it is not given out."""
        if self._gpu_free is None:
            free = np.maximum(self._select(self._state.nodes.gpus.left)[:, :, :GPU_AMOUNTS], 0)
            free.flags.writeable = False
            self._gpu_free = free
        return self._gpu_free

    @property
    def devices(self) -> DeviceTable:
        """Devices of every type, by row of the whole cluster.  Not to be written to."""
        return self._state.nodes.devices

    @property
    def numa(self) -> NumaTable:
        """CPUs and NUMA nodes, by row of the whole cluster.  Not to be written to."""
        return self._state.nodes.numa

    def load(self, rules: LoadRules) -> LoadLedger:
        """Return how loaded nodes are, by row of the whole cluster.  Not to be written to.

        The pods of ``added`` are not counted.
        """
        return self._state.load.by(rules)

    @property
    def has_load_reports(self) -> bool:
        """Whether any node has a NodeMetric: one of the ``traits``."""
        return bool(self._state.load.metrics)

    @property
    def added(self) -> tuple[PodClass, IntArray] | None:
        """A class of pods and how many more of them each row has taken; see ``after``."""
        return self._added

    @property
    def row_numbers(self) -> IntArray:
        """``(n,)``: which rows of the whole cluster these are."""
        return np.arange(len(self._state.nodes)) if self.rows is None else self.rows

    @property
    def usage_version(self) -> int:
        """Version of the usage of all nodes; grows when pods come or go.

        What is worked out about these rows alone, as plugins do that ask each other, holds for it.
        """
        return self._state.usage_log.position

    @property
    def lowest_priority(self) -> IntArray:
        """``(n,)``: of the pods on the node; higher than any priority where there are none."""
        return self._select(self._state.pods.lowest_priority)

    def pods_on(self, row: int) -> Iterable[PlacedPod]:
        """Return the pods on a row (of the whole cluster)."""
        return self._state.pods.on_row[row].values()

    def rows_since(self, position: int) -> tuple[IntArray, int]:
        """Return the cluster's rows whose pods changed after ``position``, and the position now.

        All rows for a position that is too long ago, or -1.
        """
        log = self._state.usage_log
        rows = log.since(position)
        return (np.arange(len(self._state.nodes)) if rows is None else rows), log.position

    @property
    def position(self) -> int:
        """Grows with every change of the pods on any row, and with reports of what nodes have."""
        return self._state.usage_log.position

    def changed_at(self, row: int) -> int:
        """Return the position from which on a row (of the whole cluster) has not changed."""
        return self._state.usage_log.last(row)

    # -- cluster-wide facts, for plugins that declare ``Reads.CLUSTER`` ----------------------------

    def count_pods(self, scope: PodScope, *, terminating: bool = True) -> IntArray:
        """Return ``(n_all,)``: pods on every row of the cluster that the scope covers.

        Reserve pods of reservations that the pod may use are not counted.
        """
        counts = self._state.pods.count(scope, terminating=terminating)[: len(self._state.nodes)]
        if self._restorable is not None:
            counts = counts.copy()
            for hold in self._restorable.among(None):
                counts[hold.row] -= self.is_covered(hold.placed.pod_class, scope)
        counts.flags.writeable = False
        return counts

    @property
    def pod_labels(self) -> Iterator[tuple[str, str]]:
        """Keys and values of the labels that pods have, placed or not."""
        return self._state.pods.known_labels

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace; none of one that is not known."""
        return self._state.pods.namespace_labels(name)

    def is_covered(self, pod: PodClass, scope: PodScope) -> bool:
        """Return whether the scope covers a pod of this class."""
        about = self._state.pods.namespace_labels(pod.namespace)
        return scope.covers(pod.namespace, pod.labels, about)

    def terms_about(self, pod: PodClass, *kinds: TermKind) -> list[PodCounter]:
        """Return affinity terms of placed pods that speak about this pod.

        ``counts`` has holders by row.
        """
        terms = self._state.pods.terms_about(pod, kinds)
        if self._restorable is None or not terms:
            return terms
        return self._state.pods.without_holders(
            terms, [hold.placed for hold in self._restorable.among(None)]
        )

    @property
    def objects(self) -> ObjectTable:
        """Claims, volumes, services, budgets and so on."""
        return self._state.objects

    @property
    def extended(self) -> ExtendedResources:
        """Device classes by the extended resource that they serve; read only."""
        return self._state.extended

    @property
    def network(self) -> Network:
        """The domains of the network between the nodes."""
        return self._state.network

    @property
    def pods(self) -> dict[str, PlacedPod]:
        """Every placed pod by key."""
        return self._state.pods.by_key

    def is_only_assumed(self, key: str) -> bool:
        """Return whether a pod has a place that the API server does not know."""
        return key in self._state.unbound

    def ledger(self, key: Hashable, build: Callable[[], LedgerT]) -> LedgerT:
        """Return the ledger of that key (see ``ledgers``) as of now: read only."""
        return self._state.ledgers.read(key, build)

    def _select(self, column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        out = column[: len(self._state.nodes)] if self.rows is None else column[self.rows]
        out.flags.writeable = False
        return out
