"""Pod classes: pods that no plugin can distinguish share one, and with it every cached result.

A class lives as long as it is referenced, and for a while after: ``sweep`` ends the idle ones.

The claim of an ephemeral volume is named after its pod, so a pod that has one is a class of its
own; so is a pod that claims devices, or requests them by an extended resource, and one that a
reservation names.
"""

import weakref
from collections.abc import Container, Iterable, Mapping
from dataclasses import field, replace
from functools import lru_cache
from itertools import count
from typing import Any, Protocol

import msgspec
import numpy as np

from koordinator.api.core import Toleration
from koordinator.api.meta import OwnerReference
from koordinator.api.pod import Pod, PodResourceClaimStatus, PodSpec
from koordinator.domain.pod_requests import (
    NONZERO_DEFAULTS,
    Requests,
    pod_limits,
    pod_requests,
)
from koordinator.domain.reserve_pod import is_reserve_pod
from koordinator.domain.resized_pods import (
    DEFAULT_RULES,
    EffectiveAmounts,
    effective_amounts,
    placed_defaults,
)
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memory
from koordinator.scheduler.snapshot.axis import PODS, ResourceAxis
from koordinator.scheduler.snapshot.extended_resources import ExtendedResources

#: Annotations with these prefixes are requests to the scheduler …
READ_PREFIXES = (
    "internal.scheduling.koordinator.sh/",
    "scheduling.koordinator.sh/",
    "gang.scheduling.koordinator.sh/",
    "pod.koordinator.sh/",
)
#: … except the ones that it wrote itself.
WRITTEN = frozenset(
    {
        "scheduling.koordinator.sh/device-allocated",
        "scheduling.koordinator.sh/resource-status",
        "scheduling.koordinator.sh/reservation-allocated",
        "scheduling.koordinator.sh/reservation-name",
    }
)

#: So many new classes, and such a part of all, and it is time to look for idle ones.  An idle class
#: takes 10 to 40 KiB, and more on thousands of nodes; classes of two sweeps are kept.
NEW_CLASSES = 1 << 7
_SHARE = 16
#: As many bytes of specs, labels and annotations that are new also lead to a sweep: a pod may have
#: a megabyte of them.
NEW_BYTES = 1 << 22
_MANY = 16  # tolerations of a pod
_SPECS = 1 << 10  # remembered by identity
_LARGE_SPEC = 1 << 12  # bytes of a spec that is not remembered
_LARGE = 1 << 16  # bytes of a class that is not kept for later when no pod is of it any more

_Served = tuple[tuple[str, str], ...]  # (resource, class)
_encode = msgspec.msgpack.Encoder(enc_hook=str, order="deterministic").encode


@dataclass(slots=True, eq=False, weakref_slot=True)
class PodClass:
    """Properties that all pods of the class share.  Plugins see this, never a single pod."""

    id: int
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]  # those that scheduling reads
    owner_kind: str  # kind of the controlling owner, e.g. DaemonSet
    owner_name: str
    owner_references: tuple[OwnerReference, ...]
    spec: PodSpec
    labelset: int  # see ``PodTable``
    columns: IntArray  # requested resources (amount > 0) …
    amounts: IntArray  # … and how much, canonical units; ``pods`` is one of them
    demand: tuple[tuple[int, int], ...]  # the same as pairs
    nonzero_cpu: int  # of a pod to be placed, with the defaults for containers without requests
    nonzero_memory: int
    effective: (
        EffectiveAmounts  # what a placed pod counts with; may differ from the spec during a resize
    )
    host_ports: tuple[tuple[str, str, int], ...]  # (ip, protocol, port)
    images: tuple[str, ...]  # of containers and init containers, with repeats
    name: str = ""  # of the one pod, if its name matters; empty for all others
    uid: str = ""  # of the one pod, if it matters
    claims_made: tuple[PodResourceClaimStatus, ...] = ()  # of templates, for the one pod
    #: requested resources that DeviceClasses serve, as (column, class)
    served: tuple[tuple[int, str], ...] = ()
    nbytes: int = 0  # what it takes, about, as the encoded spec with the texts beside it
    memory: Memory = field(default_factory=dict)  # what memos keep with it
    used_in: int = 0  # the generation in which a pod was last found to be one of it

    def amount(self, column: int) -> int:
        """Return the request in one column, 0 when there is none."""
        return next((amount for index, amount in self.demand if index == column), 0)


class InternLabels(Protocol):
    """``PodTable.intern_labels``; the table itself knows classes, so it can't be named here."""

    def __call__(self, namespace: str, labels: Mapping[str, str], *, terminating: bool) -> int: ...


class PodClasses:
    """Interns pods into classes."""

    def __init__(
        self,
        axis: ResourceAxis,
        intern_labels: InternLabels,
        extended: ExtendedResources,
        named: Container[str] = (),
        *,
        new_classes: int = NEW_CLASSES,
        new_bytes: int = NEW_BYTES,
    ) -> None:
        """``named``: names and uids of pods that owners of reservations name each for itself."""
        self.resize = DEFAULT_RULES  # of the release of Kubernetes that is reproduced
        self._axis = axis
        self._extended = extended
        self._named = named
        self._intern_labels = intern_labels
        self._by_key: dict[Any, PodClass] = {}
        self._numbers = count()
        #: specs by identity, each with that of its class: pods of one owner may share theirs
        self._specs: dict[int, tuple[PodSpec, PodSpec, bytes]] = {}
        self._least_new = self._sweep_at = new_classes
        self._least_bytes = self._sweep_bytes = new_bytes
        self._new_bytes = 0
        self.generation = 0  # of sweeps

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, pod: Pod) -> PodClass:
        """Return the pod's class.  Cost of a known one: an encoding and a look-up.

        The order of keys and of tolerations makes no other class.
        """
        meta = pod.metadata
        known_spec = self._specs.get(id(pod.spec))
        _, spec, encoded = self._encoded(pod.spec) if known_spec is None else known_spec
        annotations = _relevant(meta.annotations)
        served = self._served(pod)
        key = (
            meta.namespace,
            encoded,
            frozenset(meta.labels.items()),
            meta.deletion_timestamp is not None,
            annotations,
            meta.owner_references,
            self._identity(pod, served),
            served,
            pod.status.resource_claim_statuses if spec.resource_claims else (),
        )
        known = self._by_key.get(key)
        if known is None:
            known = self._by_key[key] = self._build(pod, spec, dict(annotations or ()), served)
            known.nbytes = len(key[1]) + _size(meta.labels.items()) + _size(annotations or ())
            self._new_bytes += known.nbytes
        effective = effective_amounts(pod, self.resize, known.effective)
        if effective is not known.effective and effective != known.effective:
            known = self._resized(key, known, effective)
        known.used_in = self.generation
        return known

    def _encoded(self, own: PodSpec) -> tuple[PodSpec, PodSpec, bytes]:
        """Return a spec, the spec of its class and the encoded one, which is remembered."""
        tolerations = _in_order(own.tolerations) if len(own.tolerations) > 1 else own.tolerations
        spec = own
        if spec.node_name or tolerations is not spec.tolerations:
            spec = msgspec.structs.replace(spec, node_name="", tolerations=tolerations)
        entry = (own, spec, _encode(spec))
        if len(entry[2]) <= _LARGE_SPEC:
            if len(self._specs) >= _SPECS:
                self._specs.clear()
            self._specs[id(own)] = entry
        return entry

    def _resized(
        self, key: tuple[Any, ...], base: PodClass, effective: EffectiveAmounts
    ) -> PodClass:
        """Return the class of pods whose effective amounts differ from their specs' requests."""
        key = (*key, effective.key)
        known = self._by_key.get(key)
        if known is None:
            demand = self._demand(effective.requests)
            known = self._by_key[key] = replace(
                base,
                id=next(self._numbers),
                columns=np.array([column for column, _ in demand], np.int64),
                amounts=np.array([amount for _, amount in demand], np.int64),
                demand=demand,
                effective=effective,
                memory={},
            )
        return known

    def _demand(self, requests: Requests) -> tuple[tuple[int, int], ...]:
        amounts = self._axis.columns_of_pod(requests)
        amounts[PODS] = 1
        return tuple(sorted(amounts.items()))

    @property
    def is_due(self) -> bool:
        """Whether the number or size of new classes makes a sweep worthwhile."""
        return len(self._by_key) >= self._sweep_at or self._new_bytes >= self._sweep_bytes

    def sweep(self) -> list[PodClass]:
        """Forget the classes without references and recent pods; return all others.

        Numbers that living classes refer to (labels, columns) can then be distinguished from
        numbers that may be reused.
        """
        recent = [
            c for c in self._by_key.values() if c.used_in == self.generation and c.nbytes < _LARGE
        ]
        references = [(key, weakref.ref(c)) for key, c in self._by_key.items()]
        self._by_key.clear()
        self._by_key = {key: c for key, reference in references if (c := reference()) is not None}
        self.generation += 1
        kept = len(self._by_key)
        self._sweep_at = kept + max(self._least_new, kept // _SHARE)
        size = sum(c.nbytes for c in self._by_key.values())
        self._new_bytes, self._sweep_bytes = 0, max(self._least_bytes, size // _SHARE)
        del recent
        return [*self._by_key.values()]

    def _served(self, pod: Pod) -> _Served:
        """Return the extended resources that DeviceClasses serve, with the classes.

        A reserve pod has none, because no claim is created for it.
        """
        if not self._extended.classes:
            return ()
        resources = self._extended.served(pod.spec)
        return (
            tuple(sorted(resources.items()))
            if resources and not is_reserve_pod(pod.metadata)
            else ()
        )

    def _identity(self, pod: Pod, served: _Served) -> tuple[str, str] | None:
        """Return the pod's name and uid if a plugin has to know them."""
        meta, spec, named = pod.metadata, pod.spec, self._named
        its_own = (
            spec.resource_claims
            or served
            or (spec.volumes and any(volume.ephemeral for volume in spec.volumes))
            or meta.uid in self._extended.claims
        )
        if its_own or meta.name in named or meta.uid in named:
            return meta.name, meta.uid
        return None

    def _build(
        self, pod: Pod, spec: PodSpec, annotations: dict[str, str], served: _Served
    ) -> PodClass:
        meta = pod.metadata
        owner = meta.controller
        requests = pod_requests(spec)
        # As in kube-scheduler, scores count default amounts for containers without requests; a
        # placed pod with pod-level requests has only the defaults of the resources that it lacks.
        nonzero = pod_requests(spec, NONZERO_DEFAULTS)
        defaults = placed_defaults(spec, requests)
        placed = nonzero if defaults is NONZERO_DEFAULTS else pod_requests(spec, defaults)
        demand = self._demand(requests)
        containers = (*spec.init_containers, *spec.containers)
        name, uid = self._identity(pod, served) or ("", "")
        columns = {self._axis.names[column]: column for column, _ in demand}
        sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
        return PodClass(
            id=next(self._numbers),
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=annotations,
            owner_kind=owner.kind if owner else "",
            owner_name=owner.name if owner else "",
            owner_references=meta.owner_references,
            spec=spec,
            labelset=self._intern_labels(
                meta.namespace, meta.labels, terminating=meta.deletion_timestamp is not None
            ),
            columns=np.array([column for column, _ in demand], np.int64),
            amounts=np.array([amount for _, amount in demand], np.int64),
            demand=demand,
            nonzero_cpu=nonzero.get("cpu", 0),
            nonzero_memory=nonzero.get("memory", 0),
            effective=EffectiveAmounts(
                requests, pod_limits(spec), placed.get("cpu", 0), placed.get("memory", 0)
            ),
            host_ports=tuple(
                (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 (the wildcard of the API)
                for container in (*spec.containers, *sidecars)
                for port in container.ports
                if port.host_port
            ),
            images=tuple(container.image for container in containers),
            name=name,
            uid=uid,
            claims_made=pod.status.resource_claim_statuses if spec.resource_claims else (),
            served=tuple((columns[each], by) for each, by in served if each in columns),
        )


def _in_order(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Return tolerations in a canonical order, which does not matter to taints."""
    if len(tolerations) > _MANY:  # what is remembered is bounded in number alone
        return _sorted(tolerations)
    return _remembered(tolerations)


def _sorted(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    ordered = tuple(sorted(tolerations, key=_encode))
    return tolerations if ordered == tolerations else ordered


_remembered = lru_cache(1 << 12)(_sorted)


def _size(texts: Iterable[tuple[str, str]]) -> int:
    return sum(len(key) + len(value) for key, value in texts)


def _relevant(annotations: Mapping[str, str]) -> frozenset[tuple[str, str]] | None:
    if not annotations:
        return None
    labels = frozenset(
        (key, value)
        for key, value in annotations.items()
        if key.startswith(READ_PREFIXES) and key not in WRITTEN
    )
    return labels or None
