"""Device requests of pods, and the annotations that a bind adds."""

from collections.abc import Hashable, Mapping
from dataclasses import field
from functools import partial

from koordinator.api.annotations.devices import DeviceAllocations
from koordinator.api.annotations.reservation import RESIZE_ALLOCATABLE, ResizeAllocatable
from koordinator.api.core import ConfigMap
from koordinator.api.device import Device, DeviceType
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.allocation import NO_TEMPLATE, Allocation, DeviceShortage
from koordinator.domain.devices.model import TemplateTable, read_templates
from koordinator.domain.devices.pod_request import WISHES, PodDeviceRequest, pod_device_request
from koordinator.domain.devices.requests import DEVICE_NAMES, DeviceRequestError
from koordinator.domain.devices.vendor import AdaptationError
from koordinator.domain.devices.vendors import Adaptation, adaptation
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import AllocationResult, Refusal
from koordinator.scheduler.plugins.device_share.on_model import RequestOnModel
from koordinator.scheduler.snapshot import DeviceTable, PodClass, Snapshot

KEEP_REQUESTS = 1 << 12


@dataclass(slots=True, eq=False)
class RequestEntry:
    """Request with its cached results by model of machine."""

    pod_request: PodDeviceRequest
    #: types whose devices were ranked, by the state that decides which devices have enough
    ranked: dict[Hashable, tuple[DeviceType, ...]] = field(default_factory=dict)
    #: allocation of the request, by that state and the amounts left of the ranked types
    got: dict[Hashable, Allocation | DeviceShortage] = field(default_factory=dict)
    #: shortages by number; number 0 means none
    shortages: list[DeviceShortage | None] = field(default_factory=lambda: [None])
    _models: dict[int, RequestOnModel] = field(default_factory=dict)  # by number

    def on(self, devices: DeviceTable, model: int) -> RequestOnModel:
        """Return the cached evaluation of the request on nodes of a model."""
        known = self._models.get(model)
        if known is None:
            known = RequestOnModel(devices.models[model], self.pod_request, self._number)
            self._models[model] = known
        return known

    def _number(self, shortage: DeviceShortage | None) -> int:
        if shortage not in self.shortages:
            self.shortages.append(shortage)
        return self.shortages.index(shortage)


@dataclass(slots=True, eq=False)
class RequestCache:
    """Requests evaluated against one version of the templates; equal ones share an entry."""

    table: TemplateTable
    problem: str = ""  # parse error of the current ConfigMap; an older table is in use
    #: by the requests and annotations read; None if the pod requests no devices
    known: dict[Hashable, RequestEntry | Refusal | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Templates:
    """Source of virtual templates, and the resources limited to their sizes."""

    config_map: str  # namespace/name
    resources: tuple[str, ...]
    _cache: Memo[RequestCache] = field(default_factory=Memo)
    _entry: Memo[RequestEntry | Refusal | None] = field(default_factory=Memo)

    def _requests(self, snapshot: Snapshot, version: int) -> RequestCache:
        """Return the templates with the requests evaluated against them.

        A malformed ConfigMap keeps the previous table.
        """
        before = self._cache.peek(snapshot.shared)
        return self._cache.as_of(snapshot.shared, version, self._read_table, snapshot, before)

    def _read_table(self, snapshot: Snapshot, before: RequestCache | None) -> RequestCache:
        stored = snapshot.objects.get(ConfigMap, self.config_map)
        try:
            return RequestCache(read_templates(stored) if stored is not None else TemplateTable())
        except InputError as error:
            return RequestCache(before.table if before is not None else TemplateTable(), str(error))

    def pod_request(self, snapshot: Snapshot, pod: PodClass) -> RequestEntry | Refusal | None:
        """Return the device request of the pod, None without one, or why it is invalid."""
        version = snapshot.objects.version(ConfigMap)
        return self._entry.as_of(pod, version, self._entry_of, snapshot, pod, version)

    def _entry_of(
        self, snapshot: Snapshot, pod: PodClass, version: int
    ) -> RequestEntry | Refusal | None:
        pod_requests = self._requests(snapshot, version)
        names = snapshot.resources
        requests = {names[at]: amount for at, amount in pod.demand if names[at] in DEVICE_NAMES}
        if not requests:
            return None
        hints = {key: pod.annotations[key] for key in WISHES if key in pod.annotations}
        key = (*requests.items(), *hints.items())
        if key not in pod_requests.known:
            if len(pod_requests.known) >= KEEP_REQUESTS:
                pod_requests.known.clear()
            pod_requests.known[key] = self._read(requests, hints, pod_requests)
        return pod_requests.known[key]

    def _read(
        self, requests: Mapping[str, int], hints: dict[str, str], pod_requests: "RequestCache"
    ) -> RequestEntry | Refusal | None:
        meta = ObjectMeta(annotations=hints)
        try:
            pod_request = pod_device_request(meta, requests, pod_requests.table, self.resources)
        except (DeviceRequestError, InputError) as error:
            reason = str(error)
            is_old = pod_requests.problem and reason == NO_TEMPLATE.reason
            return Refusal(f"{reason}; {pod_requests.problem}" if is_old else reason)
        return None if pod_request is None else RequestEntry(pod_request)


def marks(
    node: Snapshot, pod: PodClass, allocations: DeviceAllocations
) -> AllocationResult | Refusal:
    """Return labels, annotations stamped with the bind time, and the node lock to take."""
    name = node.node_names[0]
    reported = node.objects.get(Device, name)
    adapted = partial(
        adaptation,
        allocations,
        node_name=name,
        device_labels=reported.metadata.labels if reported else {},
        pod_labels=pod.labels,
    )
    try:
        adapted_now = adapted(now_ns=0)
    except AdaptationError as error:
        return Refusal(str(error))
    stamps = (partial(_stamp, adapted),)
    return AllocationResult(
        labels=adapted_now.labels, stamps=stamps, node_lock=adapted_now.node_lock
    )


def _stamp(adapted: "partial[Adaptation]", now_ns: int) -> Mapping[str, str]:
    return adapted(now_ns=now_ns).annotations


def resized(pod: PodClass, allocations: DeviceAllocations) -> Mapping[str, str] | Refusal:
    """Return the annotation with its previous resources and the amounts of all devices."""
    try:
        previous = RESIZE_ALLOCATABLE.read(ObjectMeta(annotations=dict(pod.annotations)))
    except InputError as error:
        return Refusal(str(error))
    totals: dict[str, Quantity] = {}
    for devices in allocations.values():
        for device in devices:
            for name, amount in device.resources.items():
                totals[name] = totals[name] + amount if name in totals else amount
    resources = {**(previous.resources if previous else {}), **totals}
    return RESIZE_ALLOCATABLE.entry(ResizeAllocatable(resources=resources))
