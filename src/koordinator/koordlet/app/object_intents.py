"""Intents that depend on objects only, without samples, and the disks of volumes for them.

Source: koordinator pkg/koordlet/qosmanager/plugins/blkio/blkio_reconcile.go,
``getDiskNumberFromPodVolume``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from koordinator.api.volume import PersistentVolumeClaim
from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import InputError, NotFoundError
from koordinator.foundation.files import path_component
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.app.rounds import PodIsolation
from koordinator.koordlet.collectors.node import Disks
from koordinator.koordlet.hooks.batch_resources import plan_batch_resources, plan_oom_scores
from koordinator.koordlet.hooks.cpu_qos import plan_core_scheduling, plan_group_identity
from koordinator.koordlet.hooks.cpuset import is_tier_suppressed, plan_cpusets
from koordinator.koordlet.intents import Intent
from koordinator.koordlet.qos.blkio import DiskLookup, plan_blkio
from koordinator.koordlet.qos.memory_qos import plan_memory_qos, plan_system_config
from koordinator.koordlet.qos.resctrl import ResctrlFacts, plan_class_resctrl, plan_pod_resctrl
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView


class Volumes:
    """Implementation of ``qos.blkio.DiskLookup``.

    The volume name of a claim is requested from the API server once and available a moment later.
    """

    def __init__(self, disks: Disks, outbox: Outbox, kubelet_root: str) -> None:
        self._disks = disks
        self._outbox = outbox
        self._kubelet_root = kubelet_root
        self._names: dict[tuple[str, str], str] = {}
        self._used: set[tuple[str, str]] = set()  # claims looked up since the last ``expire``

    def of_device(self, name: str) -> str | None:
        return self._disks.of_device(name)

    def of_volume_group(self, group: str) -> str | None:
        return self._disks.of_volume_group(group)

    def of_pod_volume(self, pod: PodView, volume: str) -> str | None:
        for each in pod.pod.spec.volumes:
            if each.name != volume:
                continue
            name = volume
            if each.persistent_volume_claim is not None:
                claim = each.persistent_volume_claim.claim_name
                name = self._volume_name(pod.pod.metadata.namespace, claim)
            try:
                folder = path_component(name, path="spec.volumes[].name")
            except InputError:
                return None
            volumes = f"{self._kubelet_root}/pods/{pod.uid}/volumes/kubernetes.io~csi"
            return self._disks.of_mount(f"{volumes}/{folder}/mount")
        return None

    def expire(self) -> None:
        """Forget the claims that were not looked up since the last call."""
        self._names = {one: name for one, name in [*self._names.items()] if one in self._used}
        self._used = set()

    def _volume_name(self, namespace: str, claim: str) -> str:
        self._used.add((namespace, claim))
        known = self._names.get((namespace, claim), "")
        if not known:

            def look_up(cluster: Cluster) -> None:
                try:
                    volume_claim = cluster.get(PersistentVolumeClaim, claim, namespace)
                except NotFoundError:
                    return
                self._names[namespace, claim] = volume_claim.spec.volume_name

            self._outbox.put(f"volume of {namespace}/{claim}", look_up)
        return known


Plan = Callable[[NodeView], list[Intent]]

#: Plans by feature gate, in order of application: the last write to a file wins.
PLANS: Final[Mapping[str, Plan]] = MappingProxyType(
    {
        "CgroupReconcile": plan_memory_qos,
        "SystemConfig": plan_system_config,
        "CoreSched": plan_core_scheduling,
        "GroupIdentity": plan_group_identity,
        "BatchResource": plan_batch_resources,
        "OOMScoreAdj": plan_oom_scores,
    }
)


def plan_all(
    view: NodeView,
    gates: Collection[str],
    disks: DiskLookup,
    caches: ResctrlFacts | None,
    isolation: PodIsolation,
    *,
    keep_quota: bool,
) -> list[Intent]:
    """Return the intents of the enabled features; ``caches`` is None without resctrl.

    A feature that fails for a pod is planned without that pod; other features keep it.
    """
    intents: list[Intent] = []
    for gate, plan in _plans(gates, disks, caches, keep_quota=keep_quota):

        def of(pods: tuple[PodView, ...], plan: Plan = plan) -> list[Intent]:
            return plan(view.with_pods(pods))

        intents += isolation.attempt(gate, view.pods, of) or ()
    return intents


def _plans(
    gates: Collection[str], disks: DiskLookup, caches: ResctrlFacts | None, *, keep_quota: bool
) -> Iterator[tuple[str, Plan]]:
    """Yield the plans of the enabled features in order of application."""
    plans = {**PLANS}
    if "BECPUSuppress" not in gates:
        plans["BatchResource"] = partial(plan_batch_resources, is_suppressed=False)
    for gate, plan in plans.items():
        if gate in gates:
            yield gate, plan
    if "BlkIOReconcile" in gates:
        yield "BlkIOReconcile", partial(plan_blkio, disks=disks)
    if "CPUSetAllocator" in gates:
        plan = partial(
            plan_cpusets,
            best_effort_cpus="BECPUManager" in gates,
            is_suppressed=is_tier_suppressed(gates),
            keep_quota=keep_quota,
        )
        yield "CPUSetAllocator", plan
    if "RdtResctrl" in gates and caches is not None:
        yield "RdtResctrl", partial(plan_class_resctrl, facts=caches)
    if "Resctrl" in gates and caches is not None:
        yield "Resctrl", partial(plan_pod_resctrl, facts=caches)
