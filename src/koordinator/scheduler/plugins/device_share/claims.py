"""What pods ask of devices, in view of the virtual templates that the cluster has."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from koordinator.api.config_map import ConfigMap
from koordinator.api.device import DeviceType
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.allocation import Allocation
from koordinator.domain.devices.claim import WISHES, DeviceClaim, device_claim
from koordinator.domain.devices.requests import DEVICE_NAMES, DeviceRequestError
from koordinator.domain.devices.shortage import NO_TEMPLATE, DeviceShortage
from koordinator.domain.devices.templates import TemplateTable, read_templates
from koordinator.foundation.errors import InputError
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.plugins.device_share.on_model import ClaimOnModel
from koordinator.scheduler.snapshot import PodClass, Snapshot

KEEP_CLAIMS = 1 << 12


@dataclass(slots=True, eq=False)
class ClaimEntry:
    """A claim and what it came to on the models of machines so far."""

    claim: DeviceClaim
    #: of which types devices were ranked, by what decides which devices have enough …
    ranked: dict[Hashable, tuple[DeviceType, ...]] = field(default_factory=dict)
    #: … and what the claim got, also by how much was left of those
    got: dict[Hashable, Allocation | DeviceShortage] = field(default_factory=dict)
    #: what a node may lack; by number, 0 stands for nothing
    shortages: list[DeviceShortage | None] = field(default_factory=lambda: [None])
    _models: dict[int, ClaimOnModel] = field(default_factory=dict)  # by number

    def on(self, snapshot: Snapshot, model: int) -> ClaimOnModel:
        """Return what is known of the claim on nodes of a model."""
        known = self._models.get(model)
        if known is None:
            known = ClaimOnModel(snapshot.devices.models[model], self.claim, self._number)
            self._models[model] = known
        return known

    def _number(self, shortage: DeviceShortage | None) -> int:
        if shortage not in self.shortages:
            self.shortages.append(shortage)
        return self.shortages.index(shortage)


@dataclass(slots=True, eq=False)
class ClaimCache:
    """The templates in one version, and what pods claim: those that ask the same share a claim."""

    table: TemplateTable
    problem: str = ""  # why these are not the templates that the cluster has now
    #: by what is read of pods; None if nothing is claimed
    known: dict[Hashable, ClaimEntry | Refusal | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Templates:
    """Where virtual templates are described, and for which resources they are the only sizes."""

    config_map: str  # namespace/name
    resources: tuple[str, ...]
    _cache: Memo[ClaimCache] = field(default_factory=Memo)
    _claimed: Memo[ClaimEntry | Refusal | None] = field(default_factory=Memo)

    def _claims(self, snapshot: Snapshot, version: int) -> ClaimCache:
        """Return the templates and what is claimed in view of them.

        A table that can't be read changes nothing.
        """
        before = self._cache.found(snapshot.shared)
        return self._cache.as_of(snapshot.shared, version, self._read_table, snapshot, before)

    def _read_table(self, snapshot: Snapshot, before: ClaimCache | None) -> ClaimCache:
        found = snapshot.objects.get(ConfigMap, self.config_map)
        try:
            return ClaimCache(read_templates(found) if found is not None else TemplateTable())
        except InputError as error:
            return ClaimCache(before.table if before is not None else TemplateTable(), str(error))

    def claim(self, snapshot: Snapshot, pod: PodClass) -> ClaimEntry | Refusal | None:
        """Return what the pod asks of devices: None if nothing; a refusal if that can't be."""
        version = snapshot.objects.version(ConfigMap)
        return self._claimed.as_of(pod, version, self._claim, snapshot, pod, version)

    def _claim(
        self, snapshot: Snapshot, pod: PodClass, version: int
    ) -> ClaimEntry | Refusal | None:
        claims = self._claims(snapshot, version)
        names = snapshot.resources
        asked = {names[at]: amount for at, amount in pod.demand if names[at] in DEVICE_NAMES}
        if not asked:
            return None
        wishes = {key: pod.annotations[key] for key in WISHES if key in pod.annotations}
        key = (*asked.items(), *wishes.items())
        if key not in claims.known:
            if len(claims.known) >= KEEP_CLAIMS:
                claims.known.clear()
            claims.known[key] = self._read(asked, wishes, claims)
        return claims.known[key]

    def _read(
        self, asked: Mapping[str, int], wishes: dict[str, str], claims: "ClaimCache"
    ) -> ClaimEntry | Refusal | None:
        meta = ObjectMeta(annotations=wishes)
        try:
            claim = device_claim(meta, asked, claims.table, self.resources)
        except (DeviceRequestError, InputError) as error:
            said = str(error)
            is_old = claims.problem and said == NO_TEMPLATE.reason
            return Refusal(f"{said}; {claims.problem}" if is_old else said)
        return None if claim is None else ClaimEntry(claim)
