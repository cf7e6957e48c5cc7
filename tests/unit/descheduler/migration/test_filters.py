"""Filter of the MigrationController: each check of the specification."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.migration.world import MigrationWorld, job, replicas
from tests.worlds import node

from koordinator.api.meta import KubeObject, OwnerReference
from koordinator.api.pod import Pod, PodStatus
from koordinator.api.pod_migration_job import PodMigrationReservationOptions
from koordinator.api.volume import (
    EmptyDir,
    PersistentVolumeClaimVolumeSource,
    Volume,
)
from koordinator.descheduler.contract import FilterPlugin

NODES = [node("n1"), node("n2"), node("n3")]
DAEMON = OwnerReference(kind="DaemonSet", name="agent", uid="ds", controller=True)
EVICT = "descheduler.alpha.kubernetes.io/evict"
COST = "scheduling.koordinator.sh/eviction-cost"
GATE = ["LabelSelector"]
ONLY_B = {"matchLabels": {"a": "b"}}
CLAIM = PersistentVolumeClaimVolumeSource(claim_name="data")
CLAIMS = (Volume(name="v", persistent_volume_claim=CLAIM),)


def world(
    *others: KubeObject,
    args: Any = None,
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    on: tuple[str, ...] = ("n1", "n2", "n3", "n1"),
    **changes: Any,
) -> MigrationWorld:
    """Return a world with a workload whose first pod is as given."""
    first, *rest = replicas("web", on=on)[2:]
    assert isinstance(first, Pod)
    changed = replace(
        first,
        metadata=replace(first.metadata, **(metadata or {})),
        spec=replace(first.spec, **(spec or {})),
        **changes,
    )
    workload = replicas("web", on=on)[:2]
    return MigrationWorld(*NODES, *workload, changed, *rest, *others, args=args)


def may_go(here: MigrationWorld, name: str = "web-0") -> bool:
    (plugin,) = here.descheduler.profiles[0].filters
    here.descheduler.step()
    filters: FilterPlugin = plugin
    return filters.filter(here.cluster.get(Pod, name, "default"))


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("as it is", {}),
        ("bare", {"metadata": {"owner_references": ()}, "args": {"evictAllBarePods": True}}),
        (
            "bare and failed",
            {
                "metadata": {"owner_references": ()},
                "status": PodStatus(phase="Failed"),
                "args": {"evictFailedBarePods": True},
            },
        ),
        ("critical", {"spec": {"priority": 2**31 - 1}, "args": {"evictSystemCriticalPods": True}}),
        ("no priority", {"args": {"priorityThreshold": {"value": 5}}}),
        (
            "annotated",
            {
                "metadata": {"annotations": {EVICT: ""}},
                "spec": {"priority": 2**31 - 1},
                "args": {"namespaces": {"include": ["other"]}},
            },
        ),
        ("claims are fine", {"spec": {"volumes": CLAIMS}}),
        ("gate", {"args": {"labelSelector": ONLY_B, "skipEvictionGates": GATE}}),
        ("direct", {"spec": {"scheduler_name": "x"}, "args": {"defaultJobMode": "EvictDirectly"}}),
        ("one replica", {"on": ("n1",), "args": {"skipCheckExpectedReplicas": True}}),
    ],
)  # fmt: skip
def test_filter_passes_eligible_pods(why: str, changes: dict[str, Any]) -> None:
    """By what they are, or by what the arguments allow."""
    assert may_go(world(**changes)), why


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("of a DaemonSet", {"metadata": {"owner_references": (DAEMON,)}}),
        ("mirror", {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
        ("static", {"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}}),
        ("bare", {"metadata": {"owner_references": ()}}),
        ("critical", {"spec": {"priority": 2_000_000_000}}),
        ("important", {"spec": {"priority": 9000}, "args": {"priorityThreshold": {"value": 9000}}}),
        ("local storage", {"spec": {"volumes": (Volume(name="v", empty_dir=EmptyDir()),)}}),
        (
            "claims",
            {
                "spec": {"volumes": CLAIMS},
                "args": {"ignorePvcPods": True},
            },
        ),
        ("never", {"metadata": {"annotations": {COST: "2147483647"}}}),
        ("namespace", {"args": {"namespaces": {"exclude": ["default"]}}}),
        ("labels", {"args": {"labelSelector": ONLY_B}}),
        ("scheduler", {"spec": {"scheduler_name": "other"}}),
        ("one replica", {"on": ("n1",)}),
        ("all may go", {"args": {"maxMigratingPerWorkload": 4}}),
    ],
)  # fmt: skip
def test_filter_rejects_protected_pods(why: str, changes: dict[str, Any]) -> None:
    """Each pod is protected for one reason alone."""
    assert not may_go(world(**changes)), why


@pytest.mark.parametrize(
    ("args", "pod", "may"),
    [
        ({"maxMigratingGlobally": 1}, "web-1", False),
        ({"maxMigratingGlobally": 2}, "web-1", True),
        ({"maxMigratingPerNode": 1}, "web-3", False),
        ({"maxMigratingPerNode": 1}, "web-1", True),
        ({"maxMigratingPerNode": 0}, "web-3", True),
        ({"maxMigratingPerNamespace": 1}, "web-1", False),
        ({"maxMigratingPerWorkload": 1}, "web-1", False),
        ({"maxUnavailablePerWorkload": 1}, "web-1", False),
        ({"maxMigratingGlobally": 1, "skipEvictionGates": ["MaxMigratingGlobally"]}, "web-1", True),
    ],
)
def test_limits_count_live_jobs(args: Any, pod: str, may: bool) -> None:
    """One pod of four is being moved; a job about the pod itself keeps it, too."""
    here = world(args=args)
    here.cluster.create(job("move", "web-0"))
    here.settle()
    assert here.job("move").status.phase == "Running"
    assert may_go(here, pod) is may
    assert not may_go(here, "web-0")


def test_unready_pods_count_as_unavailable() -> None:
    """By default two of four may be unavailable: with two unready pods none is evicted."""
    here = world()
    for name, expected in (("web-1", True), ("web-2", False)):
        pod = here.cluster.get(Pod, name, "default")
        here.cluster.overwrite(replace(pod, status=PodStatus(phase="Running")))
        assert may_go(here, "web-0") is expected


def test_malformed_template_is_reported_on_the_job() -> None:
    """The message has the path, and other jobs are not affected."""
    here = world()
    for name, template in (("bad", {"metadata": "web"}), ("worse", {"spec": {"owners": 1}})):
        options = PodMigrationReservationOptions(
            template=template, reservation_ref=None, preemption_options=None
        )
        new = job(name, "web-0" if name == "bad" else "web-1", reservation_options=options)
        here.cluster.create(new)
    here.advance(5)
    messages = {name: here.job(name).status.message for name in ("bad", "worse")}
    assert "spec.reservationOptions.template.metadata" in messages["bad"]
    assert "spec.reservationOptions.template.spec.owners" in messages["worse"]
