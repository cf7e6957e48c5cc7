"""What pods ask of devices, in view of the virtual templates that the cluster has."""

from dataclasses import dataclass, field
from typing import Any

from koordinator.api.config_map import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.claim import DeviceClaim, device_claim
from koordinator.domain.devices.numa_hints import NumaHintTable
from koordinator.domain.devices.parts import Part
from koordinator.domain.devices.plan import DevicePlan
from koordinator.domain.devices.requests import DeviceRequestError
from koordinator.domain.devices.templates import TemplateTable, read_templates
from koordinator.foundation.errors import InputError
from koordinator.scheduler.snapshot import PodClass, Snapshot

KEEP = 1 << 14  # answers of a kind that are remembered
Function = tuple[int, str]  # minor and bus id


@dataclass(slots=True, eq=False)
class Claimed:
    """A claim and what it came to on the models of machines so far."""

    claim: DeviceClaim
    plans: dict[int, tuple[DevicePlan, NumaHintTable]] = field(default_factory=dict)  # by number
    #: what plugins want to remember, as long as the claim is what it is
    memo: dict[Any, Any] = field(default_factory=dict)
    _serving: dict[tuple[int, frozenset[Function]], int] = field(default_factory=dict)

    def plan(self, snapshot: Snapshot, model: int) -> DevicePlan:
        """Return the plan for nodes of a model."""
        return self._known(snapshot, model)[0]

    def hints(self, snapshot: Snapshot, model: int) -> NumaHintTable:
        """Return what the claim prefers of the NUMA nodes of such nodes."""
        return self._known(snapshot, model)[1]

    def with_function(self, part: Part, taken: frozenset[Function] | None) -> int:
        """Return the devices that still have a virtual function that will do."""
        key = (id(part), taken or frozenset())
        known = self._serving.get(key)
        if known is None:
            buses: dict[int, set[str]] = {}
            for minor, bus_id in key[1]:
                buses.setdefault(minor, set()).add(bus_id)
            if len(self._serving) >= KEEP:
                self._serving.clear()
            known = self._serving[key] = part.with_function(buses)
        return known

    def _known(self, snapshot: Snapshot, model: int) -> tuple[DevicePlan, NumaHintTable]:
        known = self.plans.get(model)
        if known is None:
            plan = DevicePlan(snapshot.devices.models[model], self.claim)
            known = self.plans[model] = (plan, NumaHintTable(plan))
        return known


@dataclass(frozen=True, slots=True, eq=False)
class Templates:
    """Where virtual templates are described, and for which resources they are the only sizes."""

    config_map: str  # namespace/name
    resources: tuple[str, ...]

    def _table(self, snapshot: Snapshot, version: int) -> TemplateTable:
        """Return the templates.  A table that can't be read changes nothing."""
        memo = snapshot.memo
        known: tuple[int, TemplateTable] = memo.get(self, (-1, TemplateTable()))
        if known[0] != version:
            found = snapshot.objects.get(ConfigMap, self.config_map)
            try:
                table = read_templates(found) if found is not None else TemplateTable()
            except InputError:
                table = known[1]
            known = memo[self] = (version, table)
        return known[1]

    def claim(self, snapshot: Snapshot, pod: PodClass) -> Claimed | str | None:
        """Return what the pod asks of devices: None if nothing, a text if that can't be."""
        version = snapshot.objects.version(ConfigMap)
        known: tuple[int, Claimed | str | None] | None = pod.facts.get(self)
        if known is None or known[0] != version:
            claimed = self._claim(snapshot, pod, self._table(snapshot, version))
            known = pod.facts[self] = (version, claimed)
        return known[1]

    def _claim(
        self, snapshot: Snapshot, pod: PodClass, table: TemplateTable
    ) -> Claimed | str | None:
        names = snapshot.resources
        asked = {names[column]: amount for column, amount in pod.demand}
        meta = ObjectMeta(labels=dict(pod.labels), annotations=dict(pod.annotations))
        try:
            claim = device_claim(meta, asked, table, self.resources)
        except (DeviceRequestError, InputError) as error:
            return str(error)
        return None if claim is None else Claimed(claim)
