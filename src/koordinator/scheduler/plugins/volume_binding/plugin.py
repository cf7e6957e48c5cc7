"""Extension points of VolumeBinding.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding/volume_binding.go.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import FeatureGates, VolumeBindingArgs
from koordinator.api.kubescheduler.gates import STORAGE_CAPACITY_SCORING
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    CsiDriver,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    AllocationResult,
    Permit,
    PluginExample,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.plugins.volume_binding.claims import EVENTS, has_claims, read_claims
from koordinator.scheduler.plugins.volume_binding.messages import (
    claim_details,
    claim_to_make,
    unbound_details,
    volume_to_make,
)
from koordinator.scheduler.plugins.volume_binding.outcome import (
    REASON_NONE,
    REASON_SPACE,
    VolumeOutcome,
    find_outcome,
    score,
)
from koordinator.scheduler.rules.curves import Curve, piecewise
from koordinator.scheduler.rules.volumes import (
    SELECTED_NODE,
    claim_name,
    claim_not_found,
    is_bound,
    is_meant_for,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.objects import ObjectTable

PREFER_FREE = [(0, 100), (100, 0)]  # percent used, score
_WITHOUT_VOLUME = ([REASON_NONE], [REASON_SPACE])
KEPT = 64  # cached outcomes; bounds memory
_KINDS = (PersistentVolumeClaim, PersistentVolume, StorageClass, CsiDriver, CsiStorageCapacity)

_OUTCOMES: Memo[dict[int, VolumeOutcome | Refusal]] = Memo()


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """Filter, reservation of volumes and, with a curve, score."""

    curve: Curve | None
    timeout_s: float
    reads: ClassVar = Reads.CLUSTER

    def with_gates(self, gates: FeatureGates) -> "VolumeBinding":
        """Prefer free capacity if its gate is on and the arguments have no shape."""
        if self.curve is not None or STORAGE_CAPACITY_SCORING not in gates:
            return self
        return replace(self, curve=piecewise(PREFER_FREE))

    def applies(self, pod: PodClass) -> bool:
        return has_claims(pod)

    @property
    def hints(self) -> PluginHints:
        return PluginHints(filters=lambda _snapshot, pod: has_claims(pod), scores=self._scores)

    def _scores(self, snapshot: Snapshot, pod: PodClass) -> bool:
        if self.curve is None or not has_claims(pod):
            return False
        outcome = _outcome(snapshot.cluster, pod)
        return not isinstance(outcome, Refusal) and bool(
            outcome.matches.matches or outcome.provisions
        )

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        if not has_claims(pod):
            return None
        claims = read_claims(snapshot.objects, pod)
        return claims if isinstance(claims, Refusal) else None

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        outcome = _outcome(snapshot.cluster, pod)
        if isinstance(outcome, Refusal):
            everywhere = np.ones(len(snapshot), bool)
            return Rejections.where(everywhere, outcome.reason, unresolvable=True)
        rejections = outcome.rejections
        return (
            rejections
            if snapshot.rows is None
            else replace(rejections, codes=rejections.codes[snapshot.rows])
        )

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        outcome = _outcome(view.cluster, pod)
        if isinstance(outcome, Refusal):
            return ""
        reasons = reasons_of(outcome.rejections, int(view.names[0][0]))
        return claim_details(view, pod, outcome, reasons)

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Return the volume to create; a bound claim cannot get another volume."""
        outcome = _outcome(view.cluster, pod)
        if isinstance(outcome, Refusal):
            return ""
        reasons = reasons_of(outcome.rejections, int(view.names[0][0]))
        return volume_to_make(view, pod, outcome) if reasons in _WITHOUT_VOLUME else ""

    def refusal_detail(self, snapshot: Snapshot, pod: PodClass) -> str:
        return unbound_details(snapshot.objects, pod)

    def remedy(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, bool]:
        """Return the claims to create or to bind."""
        text = claim_to_make(snapshot.objects, pod)
        return text, bool(text)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the curve's value for the volumes that the pod would get on each node."""
        outcome = _outcome(snapshot.cluster, pod)
        if isinstance(outcome, Refusal) or self.curve is None:
            return np.zeros(len(snapshot), np.int64)
        scores = score(outcome, self.curve)
        return scores if snapshot.rows is None else scores[snapshot.rows]

    def reserve(
        self, view: Snapshot, pod: PodClass, _preference: IntArray | None
    ) -> AllocationResult | Refusal:
        """Assume the matched volumes, and request provisioning of the others on the node."""
        if not has_claims(pod):
            return AllocationResult()
        outcome = _outcome(view.cluster, pod)
        if isinstance(outcome, Refusal):
            return outcome
        row, node = int(view.names[0][0]), view.node_names[0]
        reasons = reasons_of(outcome.rejections, row)
        if reasons:
            return Refusal(", ".join(reasons))
        return AllocationResult(objects=outcome.assumed(row, node))

    def pre_bind(self, objects: ObjectTable, pod: Pod, node: str) -> Permit:
        """Wait until the volume controller and provisioners have bound every claim."""
        waits = False
        names = [claim_name(pod.metadata.name, volume) for volume in pod.spec.volumes]
        for name in filter(None, names):
            claim = objects.get(PersistentVolumeClaim, f"{pod.metadata.namespace}/{name}")
            if claim is None:
                return Permit(refusal=Refusal(claim_not_found(name)))
            if is_bound(claim):
                continue
            waits = True
            selected = claim.metadata.annotations.get(SELECTED_NODE)
            if selected != node and not any(
                is_meant_for(volume, claim) for volume in objects.all(PersistentVolume)
            ):
                return Permit(refusal=Refusal(f'provisioning failed for PVC "{name}"'))
        return Permit(wait_s=self.timeout_s) if waits else Permit()


def _outcome(cluster: Snapshot, pod: PodClass) -> VolumeOutcome | Refusal:
    """Return the outcome of the pod's claims, cached until an object it depends on changes."""
    version = (cluster.objects.version(*_KINDS), cluster.node_version)
    kept = _OUTCOMES.as_of(cluster.shared, version, dict)
    known = kept.get(pod.id)
    if known is None:
        if len(kept) > KEPT:
            kept.clear()
        claims = read_claims(cluster.objects, pod)
        known = claims if isinstance(claims, Refusal) else find_outcome(cluster, claims)
        kept[pod.id] = known
    return known


def build(args: VolumeBindingArgs, _axis: ResourceAxis) -> VolumeBinding:
    points = [(point.utilization, point.score * 10) for point in args.shape or ()]
    return VolumeBinding(piecewise(points) if points else None, args.bind_timeout_seconds)


EXAMPLE = PluginExample(
    args={
        "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
    },
    pods=(
        {},
        *(
            {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}}
            for name in ("a", "b")
        ),
    ),
    objects=(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *(
            manifest
            for name in ("a", "b")
            for manifest in (
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "local",
                        "resources": {"requests": {"storage": "5Gi"}},
                    },
                },
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"pv-{name}"},
                    "status": {"phase": "Available"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "local",
                        "capacity": {"storage": "9Gi" if name == "a" else "90Gi"},
                        "nodeAffinity": {
                            "required": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {
                                                "key": "topology.kubernetes.io/zone",
                                                "operator": "In",
                                                "values": [name],
                                            }
                                        ]
                                    }
                                ]
                            }
                        },
                    },
                },
            )
        ),
    ),
)

PLUGIN = PluginSpec("VolumeBinding", VolumeBindingArgs, build, events=EVENTS, example=EXAMPLE)
