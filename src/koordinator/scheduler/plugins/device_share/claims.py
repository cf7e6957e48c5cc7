"""What pods ask of devices, in view of the virtual templates that the cluster has."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from koordinator.api.config_map import ConfigMap
from koordinator.api.device import DeviceType
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.allocation import Allocation
from koordinator.domain.devices.claim import DeviceClaim, device_claim
from koordinator.domain.devices.requests import DeviceRequestError
from koordinator.domain.devices.shortage import NO_TEMPLATE, Shortage
from koordinator.domain.devices.templates import TemplateTable, read_templates
from koordinator.foundation.errors import InputError
from koordinator.scheduler.plugins.device_share.on_model import ClaimOnModel
from koordinator.scheduler.snapshot import PodClass, Snapshot


@dataclass(slots=True, eq=False)
class Claimed:
    """A claim and what it came to on the models of machines so far."""

    claim: DeviceClaim
    #: of which types devices were ranked, by what decides which devices have enough …
    ranked: dict[Hashable, tuple[DeviceType, ...]] = field(default_factory=dict)
    #: … and what the claim got, also by how much was left of those
    got: dict[Hashable, Allocation | Shortage] = field(default_factory=dict)
    #: what a node may lack; by number, 0 stands for nothing
    shortages: list[Shortage | None] = field(default_factory=lambda: [None])
    _models: dict[int, ClaimOnModel] = field(default_factory=dict)  # by number

    def on(self, snapshot: Snapshot, model: int) -> ClaimOnModel:
        """Return what is known of the claim on nodes of a model."""
        known = self._models.get(model)
        if known is None:
            known = ClaimOnModel(snapshot.devices.models[model], self.claim, self._number)
            self._models[model] = known
        return known

    def _number(self, shortage: Shortage | None) -> int:
        if shortage not in self.shortages:
            self.shortages.append(shortage)
        return self.shortages.index(shortage)


@dataclass(frozen=True, slots=True, eq=False)
class Templates:
    """Where virtual templates are described, and for which resources they are the only sizes."""

    config_map: str  # namespace/name
    resources: tuple[str, ...]

    def _table(self, snapshot: Snapshot, version: int) -> tuple[TemplateTable, str]:
        """Return the templates, and why they are not those that the cluster has now.

        A table that can't be read changes nothing.
        """
        memo = snapshot.memo
        known: tuple[int, TemplateTable, str] = memo.get(self, (-1, TemplateTable(), ""))
        if known[0] != version:
            found = snapshot.objects.get(ConfigMap, self.config_map)
            table, problem = TemplateTable(), ""
            try:
                table = read_templates(found) if found is not None else table
            except InputError as error:
                table, problem = known[1], str(error)
            known = memo[self] = (version, table, problem)
        return known[1:]

    def claim(self, snapshot: Snapshot, pod: PodClass) -> Claimed | str | None:
        """Return what the pod asks of devices: None if nothing, a text if that can't be."""
        version = snapshot.objects.version(ConfigMap)
        known: tuple[int, Claimed | str | None] | None = pod.facts.get(self)
        if known is None or known[0] != version:
            table, problem = self._table(snapshot, version)
            claimed = self._claim(snapshot, pod, table)
            if problem and claimed == NO_TEMPLATE.reason:
                claimed = f"{claimed}; {problem}"
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
