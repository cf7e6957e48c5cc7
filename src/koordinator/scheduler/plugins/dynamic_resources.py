"""Dynamic resource allocation: not done yet, and said so to the pods that ask for it.

A pod with resource claims is refused instead of being placed without its devices.  The PostFilter
message is the reference's for a pod that holds no claims.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources ``PostFilter``.
"""

from typing import ClassVar

from koordinator.api.kubescheduler import DynamicResourcesArgs
from koordinator.scheduler.contract import (
    Attempt,
    PluginExample,
    PluginSpec,
    PostFilterResult,
    Reads,
    Refusal,
    Rejections,
    Speed,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "dynamic resource allocation is not supported: spec.resourceClaims can't be satisfied"


class DynamicResources:
    """Refuses what it can't do."""

    reads: ClassVar = Reads.CLUSTER
    speed: ClassVar = Speed(filters=lambda _snapshot, _pod: False)

    def applies(self, pod: PodClass) -> bool:
        return bool(pod.spec.resource_claims)

    def prefilter(self, _snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        return Refusal(REASON) if pod.spec.resource_claims else None

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.none(snapshot)

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        return PostFilterResult("" if attempt.members else "no new claims to deallocate")


def build(_args: DynamicResourcesArgs, _axis: ResourceAxis) -> DynamicResources:
    return DynamicResources()


EXAMPLE = PluginExample(
    pods=(
        {},
        {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}},
    ),
)

PLUGIN = PluginSpec("DynamicResources", DynamicResourcesArgs, build, example=EXAMPLE)
