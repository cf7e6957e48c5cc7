"""Explanations of pending pods: complete causes and effective remedies."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.equipped_nodes import PLACES, machine
from tests.reservations import config as reserving
from tests.reservations import reservation
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import group, member, members
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.worlds import ZONE, configuration, embedded, made, metric, near, node, pod, spread, used

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.resource_names import BATCH_CPU
from koordinator.foundation.errors import InputError, NotFoundError
from koordinator.scheduler.explanations import Explanation
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.simulator.explanations import explain_pods

CPU = "Insufficient cpu"
TAINTED = "node(s) had untolerated taint(s)"
CORDONED = "node(s) were unschedulable"


def explained(*objects: KubeObject, name: str = "default/p", **options: Any) -> Explanation:
    """Run the scheduler until nothing changes, and explain a pod."""
    one = embedded(*objects, **options)
    one.run_to_fixed_point()
    before = one.state.usage_log.position
    explanation = explain(one.scheduler.handle, name)
    one.state.validate()
    assert one.state.pods.by_key.keys() >= {
        p.key for p in one.cluster.list(Pod).items if p.spec.node_name
    }
    assert before <= one.state.usage_log.position
    return explanation


def decisive(explanation: Explanation) -> set[str]:
    return {cause.reason for cause in explanation.causes if cause.decisive}


def test_each_node_has_its_own_cause() -> None:
    """A cause that alone rejects nodes has the number of such nodes."""
    explanation = explained(
        node("full", cpu=2),
        node("infra", cpu=8, taints=["dedicated=infra:NoSchedule"]),
        node("away", cpu=8, unschedulable=True),
        pod("p", 4),
    )

    assert decisive(explanation) == {CPU, TAINTED, CORDONED}
    assert {cause.reason: (cause.nodes, cause.alone) for cause in explanation.causes} == {
        CPU: (1, 1),
        TAINTED: (1, 1),
        CORDONED: (1, 1),
    }
    assert explanation.summary.startswith("none of 3 nodes takes it")


def test_several_causes_on_one_node_are_all_named() -> None:
    """A condition shows only the first plugin that rejects a node."""
    explanation = explained(node("n", cpu=2, taints=["a=b:NoSchedule"]), pod("p", 4))

    assert decisive(explanation) == {CPU, TAINTED}
    near = explanation.nearest[0]
    assert near.lacks == {"cpu": "2"}
    assert set(near.details) == {"a=b:NoSchedule", "cpu: requests 4, 2 of 2 free"}


def test_cause_that_need_not_go_is_not_decisive() -> None:
    """No node has the cpu; that one of them has a taint as well decides nothing."""
    explanation = explained(
        node("a", cpu=2), node("b", cpu=2, taints=["x=y:NoSchedule"]), pod("p", 4)
    )

    assert decisive(explanation) == {CPU}
    assert {c.reason for c in explanation.causes if not c.decisive} == {TAINTED}


def test_a_gate_and_a_full_node_are_both_named() -> None:
    """A cause that gates the pod does not hide causes on nodes."""
    gates = [{"name": "example.com/gate"}]
    explanation = explained(node("n", cpu=2), pod("p", 4, schedulingGates=gates))

    assert decisive(explanation) == {CPU, "waiting for scheduling gates: [example.com/gate]"}
    assert explanation.queue is not None
    assert explanation.queue.state == "gated"


def test_a_missing_claim_is_named_once() -> None:
    """Four plugins look up the claim; it is one cause, next to the full node."""
    claims = [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]
    explanation = explained(node("n", cpu=2), pod("p", 4, volumes=claims))

    reasons = [cause.reason for cause in explanation.causes]
    assert reasons == ['persistentvolumeclaim "gone" not found', CPU]


def test_quota_remedy_has_the_missing_amount() -> None:
    """The remedy names the quota and the amount."""
    label = {PREFIX + "name": "team"}
    explanation = explained(
        node("n", cpu=100),
        team("team", most=3),
        pod("before", 2, labels=label, on="n"),
        pod("p", 2, labels=label),
        config=BOTH,
    )

    assert [c.plugin for c in explanation.causes] == ["ElasticQuota"]
    (remedy,) = explanation.remedies
    assert remedy.sufficient
    assert remedy.text == (
        "raise the max of quota team by cpu:1, or wait until pods of quota team that use cpu:1 end"
    )


def test_gang_is_explained_by_its_unplaced_member() -> None:
    """The explanation of any member has the number of placed members, and the next one's causes."""
    explanation = explained(
        node("n", cpu=3), group("g", 4), *members("g", 4), config=BOTH, name="default/g-0"
    )

    assert explanation.gang.startswith("gang group default/g: 3 of 4 members find a place")
    assert decisive(explanation) == {CPU}
    assert explanation.nearest[0].lacks == {"cpu": "1"}


def test_incomplete_gang_is_explained() -> None:
    """Gated members have a cause, too."""
    explanation = explained(
        node("n", cpu=9), group("g", 3), *members("g", 2), config=BOTH, name="default/g-1"
    )

    assert len(explanation.causes) == 1
    assert "needs 3 members" in explanation.causes[0].reason
    assert explanation.queue is not None
    (woken_by,) = explanation.queue.woken_by
    assert woken_by == (
        "Coscheduling: a member of its gang is added or loses its scheduling gates, "
        "its PodGroup or Workload is added or changes"
    )


def test_terminating_pods_are_waited_for() -> None:
    """A terminating pod frees capacity by itself, so the remedy is to wait."""
    explanation = explained(node("n", cpu=2), pod("old", 2, on="n", deleted=True), pod("p", 1))

    assert [remedy.kind for remedy in explanation.remedies][:1] == ["wait"]
    assert explanation.remedies[0].pods == ("default/old",)


def test_preemption_remedy_depends_on_the_policy() -> None:
    """A pod that could preempt but must not has the reason."""
    explanation = explained(
        node("n", cpu=2),
        pod("low", 2, on="n", priority=1),
        pod("p", 2, priority=5, preemptionPolicy="Never"),
    )

    remedy = next(r for r in explanation.remedies if r.kind == "preempt")
    assert "preemptionPolicy is Never" in remedy.text


def test_pod_too_large_for_every_node() -> None:
    """An empty cluster would not have room for the pod."""
    explanation = explained(node("n", cpu=2), pod("other", 2, on="n"), pod("p", 4))

    assert explanation.empty_cluster is not None
    assert not explanation.empty_cluster.fits
    assert explanation.empty_cluster.why == "it requests 4 of cpu; the most that a node has is 2"


def test_pod_of_another_scheduler_is_explained() -> None:
    """No profile of this scheduler has that name."""
    explanation = explained(node("n", cpu=2), pod("p", 1, schedulerName="other"))

    assert explanation.summary.startswith("no profile schedules it")
    assert [(r.kind, r.text, r.tried) for r in explanation.remedies] == [
        (
            "change-pod",
            "set spec.schedulerName to default-scheduler, or run the scheduler that it names",
            False,
        )
    ]


def test_batch_amounts_have_the_usual_form() -> None:
    """The explanation counts in CPUs, because 6k has no obvious meaning."""
    offered: dict[str, Any] = {BATCH_CPU: 4000}
    explanation = explained(node("n", **offered), pod("p", requests={BATCH_CPU: 6000}))

    assert explanation.empty_cluster is not None
    assert explanation.empty_cluster.why == (
        f"it requests 6 CPUs (6000m) of {BATCH_CPU}; the most that a node has is 4 CPUs (4000m)"
    )


def test_terminating_pod_is_explained() -> None:
    """A terminating pod is not scheduled, whatever its profile."""
    going = pod("p", 1, deleted=True)
    going = replace(going, metadata=replace(going.metadata, finalizers=("x.io/last",)))
    explanation = explained(node("n", cpu=2), going)

    assert explanation.summary == (
        "it is being deleted and is not scheduled any more; "
        "its finalizers [x.io/last] have not been removed yet"
    )


@pytest.mark.parametrize(
    ("there", "name", "text"),
    [
        (pod("p", phase="Succeeded", on="n"), "default/p", "it has ended: Succeeded"),
        (pod("p", phase="Failed"), "default/p", "it has ended: Failed"),
        (pod("p", on="m"), "default/p", "it is bound to node m, which does not exist"),
        (
            reservation("r", 1),
            "reservation/r",
            "no profile has the plugin Reservation, so it is not scheduled",
        ),
    ],
)
def test_unscheduled_object_is_explained(there: KubeObject, name: str, text: str) -> None:
    """The object exists, so the question is valid; but it does not wait."""
    (explanation,) = explain_pods([node("n", cpu=2), there], [name])

    assert (explanation.pod, explanation.summary, explanation.causes) == (name, text, ())


@pytest.mark.parametrize(
    ("phase", "summary"),
    [
        ("Running", "it runs on n"),
        ("Pending", "it is bound to n, where its containers have not all started"),
    ],
)
def test_a_pod_that_has_a_node_may_not_run_yet(phase: str, summary: str) -> None:
    """The image or a volume of a bound pod may be missing."""
    placed = pod("p", 1, on="n")
    one = embedded(node("n"), replace(placed, status=replace(placed.status, phase=phase)))
    one.run_to_fixed_point()

    assert explain(one.scheduler.handle, "default/p").summary == summary


@pytest.mark.parametrize(
    ("condition", "granted", "text"),
    [
        (
            {"type": "PodResizePending", "reason": "Deferred", "message": "Node is full"},
            "1",
            "its resize (cpu from 1 to 3) waits for capacity on its node (Deferred): Node is full",
        ),
        (
            {"type": "PodResizePending", "reason": "Infeasible", "message": "Node has 2 CPUs"},
            "1",
            (
                "its resize (cpu from 1 to 3) cannot be carried out on its node (Infeasible): "
                "Node has 2 CPUs"
            ),
        ),
        ({"type": "PodResizeInProgress"}, "3", "its resize is in progress"),
        ({}, "1", "its resize (cpu from 1 to 3) has not been granted by its node yet"),
        ({}, "3", ""),
    ],
)
def test_the_resize_of_a_running_pod_is_explained(
    condition: dict[str, str], granted: str, text: str
) -> None:
    """The node has not done what the spec requests."""
    manifest = to_manifest(pod("p", 3, on="n"))
    manifest["status"] = {
        "phase": "Running",
        "conditions": [{"status": "True", **condition}] if condition else [],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": granted}}],
    }
    manifest["spec"]["containers"][0]["name"] = "c"
    one = embedded(node("n", cpu=4), decode_object(manifest))
    one.run_to_fixed_point()

    where = "it runs on n"
    expected = f"{where}; {text}" if text else where
    assert explain(one.scheduler.handle, "default/p").summary == expected


def test_placed_and_unknown_pods() -> None:
    """A running pod has no causes; an unknown one is an error."""
    one = embedded(node("n", cpu=2), pod("p", 1))
    one.run_to_fixed_point()

    assert explain(one.scheduler.handle, "default/p").verdict == "placed"
    with pytest.raises(NotFoundError, match="default/q"):
        explain(one.scheduler.handle, "default/q")
    with pytest.raises(InputError, match="default/q"):
        explain_pods([node("n", cpu=2)], ["default/q"])


def test_start_is_predicted_from_known_ends() -> None:
    """The queue is simulated: the more important pod gets the first free node."""
    objects = [
        node("n", cpu=2),
        pod("a", 1, on="n", started="08:00", activeDeadlineSeconds=3_600),
        pod("b", 1, on="n", started="08:00", activeDeadlineSeconds=7_200),
        pod("first", 1, priority=9, preemptionPolicy="Never"),
        pod("p", 1),
    ]
    at_half_past_eight_s = 1_699_950_600.0
    explanations = explain_pods(objects, ["default/p", "default/first"], now_s=at_half_past_eight_s)

    assert [one.forecast.at for one in explanations if one.forecast] == [
        "2023-11-14T10:00:00Z",
        "2023-11-14T09:00:00Z",
    ]


def test_own_gang_members_are_no_victims() -> None:
    """A trial assumes members on nodes; one more node fits the two unplaced ones."""
    explanation = explained(
        node("n", cpu=2), group("g", 4), *members("g", 4), config=BOTH, name="default/g-0"
    )

    assert [(r.kind, r.text, r.sufficient) for r in explanation.remedies] == [
        ("add-node", "add a node like n: empty ones take the 2 members that find no place", True),
        ("gang", "set minMember of PodGroup default/g to 2: that many members find a place", True),
    ]


def test_remedies_change_no_facts_of_nodes() -> None:
    """Other labels may change, except topology keys of pod affinity."""
    explanation = explained(
        node("n", cpu=2, labels={"kubernetes.io/hostname": "n"}),
        pod("p", 1, nodeSelector={"kubernetes.io/hostname": "m"}),
    )
    assert not explanation.remedies

    other = explained(node("n", cpu=2), pod("p", 1, nodeSelector={"disk": "ssd"}))
    assert [r.text for r in other.remedies] == [
        "label n (disk=ssd)",
        "remove disk=ssd from its nodeSelector: n takes it then",
    ]


@pytest.mark.parametrize(
    ("report", "args", "text"),
    [
        (metric("n", cpu=8), {}, "cpu: 8 in use plus 850m of the pod, the threshold is 6549m"),
        (
            metric("n", cpu=1, at="20:00:00"),
            {},
            "its NodeMetric was last updated at 2023-11-14T20:00:00Z",
        ),
        (metric("n", cpu=1, at=""), {}, "its NodeMetric has no updateTime"),
        (
            metric("n", cpu=8, windows={("5m", "p95"): used(7)}),
            {"aggregated": {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95"}},
            "cpu: 7 in use plus 850m of the pod, the threshold is 5049m",
        ),
    ],
)
def test_busy_node_has_usage_and_threshold(
    report: KubeObject, args: dict[str, Any], text: str
) -> None:
    """Details give usage, estimates and threshold, or the age of the last report."""
    config = configuration(
        pluginConfig=[{"name": "LoadAwareScheduling", "args": args}],
        plugins={"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}},
    )
    explanation = explained(node("n", cpu=10), report, pod("p", 1), config=config)

    assert [near.details for near in explanation.nearest] == [(text,)]


def test_node_too_small_for_the_allocation_is_no_remedy() -> None:
    """The node has too few CPUs even when empty: BestEffort rejects it, too."""
    kept = {"node.koordinator.sh/reservation": '{"reservedCPUs": "0,1"}'}
    policy = {"node.koordinator.sh/numa-topology-policy": "BestEffort"}
    small = machine("m", zones=1, cores=2, topology=kept, labels=policy)
    explanation = explained(*small, pod("there", 1, on="m"), pod("p", 3), config=PLACES)

    assert explanation.summary == "none of 1 nodes takes it: 1 Insufficient NUMA cpu"
    assert explanation.empty_cluster is not None
    assert (explanation.empty_cluster.fits, explanation.empty_cluster.why) == (
        False,
        "Insufficient NUMA cpu",
    )
    assert not explanation.remedies


def measured(*objects: KubeObject, **options: Any) -> Explanation:
    """Explain with a usage threshold of 65 % of CPU."""
    load = {"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}}
    return explained(*objects, config=configuration(plugins=load), **options)


def test_missing_nodes_are_a_cause() -> None:
    """Programs read causes, not summaries."""
    explanation = explained(pod("p", 1))

    assert [cause.reason for cause in explanation.causes] == ["there are no nodes"]
    assert explanation.summary == "there are no nodes"


def test_equivalent_reasons_of_two_plugins_are_one_cause() -> None:
    """VolumeZone sees an unbound claim as a volume without a name."""
    at_once = made(
        "StorageClass",
        "at-once",
        "storage.k8s.io/v1",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="Immediate",
    )
    claim = made(
        "PersistentVolumeClaim",
        "data",
        metadata={"namespace": "default"},
        spec={"storageClassName": "at-once", "accessModes": ["ReadWriteOnce"]},
    )
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    explanation = explained(node("n"), at_once, claim, pod("p", 1, volumes=volumes))

    assert [(cause.plugin, cause.reason) for cause in explanation.causes] == [
        ("VolumeBinding, VolumeZone", "pod has unbound immediate PersistentVolumeClaims")
    ]


def bound_claim(volume: str, mode: str) -> tuple[KubeObject, list[dict[str, Any]]]:
    """Return a bound claim, and the volumes of a pod that uses it."""
    claim = made(
        "PersistentVolumeClaim",
        "data",
        metadata={
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        spec={"volumeName": volume, "storageClassName": "", "accessModes": [mode]},
    )
    return claim, [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


def test_deleted_volume_is_one_cause() -> None:
    """Plugins word it differently, about the pod or about every node."""
    claim, volumes = bound_claim("gone", "ReadWriteOnce")
    explanation = explained(node("n"), claim, pod("p", 1, volumes=volumes))

    assert [cause.reason for cause in explanation.causes] == ['persistentvolume "gone" not found']


def test_exclusive_claim_also_blocks_new_nodes() -> None:
    """An additional node does not help; the pod with the claim must end."""
    volume = made(
        "PersistentVolume",
        "pv",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOncePod"],
            "claimRef": {"namespace": "default", "name": "data"},
            "hostPath": {"path": "/data"},
        },
    )
    claim, volumes = bound_claim("pv", "ReadWriteOncePod")
    explanation = explained(
        node("n"),
        volume,
        claim,
        pod("there", 1, on="n", volumes=volumes),
        pod("p", 1, volumes=volumes),
    )

    assert [remedy.kind for remedy in explanation.remedies] == ["fewer-pods"]


def test_smaller_requests_do_not_replace_a_missing_resource() -> None:
    """With fewer CPUs the pod would still wait for its GPU."""
    explanation = explained(node("n", cpu=8), pod("p", 12, requests={"example.com/gpu": 1}))

    assert decisive(explanation) == {CPU, "Insufficient example.com/gpu"}
    assert [remedy.text for remedy in explanation.remedies] == [
        "add a node like n, but with 12 of cpu (it has 8) and 1 of example.com/gpu (it has 0)"
    ]

    kept = reservation("kept", 1, on="n", policy="Restricted")
    owner = pod("p", 8, requests={"example.com/gpu": 1}, labels={"app": "web"})
    beside = explained(node("n", cpu=8), kept, owner, config=reserving())
    assert not [remedy for remedy in beside.remedies if remedy.kind == "ask-less"]


def test_too_few_domains_are_the_cause() -> None:
    """Three zones are required where there are two, whatever their usage."""
    labels = {"app": "web"}
    explanation = explained(
        node("a", zone="1"),
        node("b", zone="2"),
        *(pod(f"on-{name}", 1, on=name, labels=labels) for name in "ab"),
        pod("p", 1, labels=labels, topologySpreadConstraints=[spread(minDomains=3)]),
    )

    few = "there are 2 domains where minDomains is 3"
    assert [near.details for near in explanation.nearest] == [
        (f"{ZONE}={zone} has 1 pod with app=web, {few}, maxSkew is 1",) for zone in "12"
    ]


def test_node_change_and_fewer_pods_are_combined() -> None:
    """The remedies suffice only together, and were tried together."""
    explanation = explained(
        node("n", cpu=2, unschedulable=True), pod("there", "1500m", on="n"), pod("p", 1)
    )

    assert [(r.kind, r.text, r.sufficient, r.pods) for r in explanation.remedies] == [
        (
            "change-node",
            "uncordon n, then it takes the pod when default/there has ended",
            True,
            ("default/there",),
        )
    ]


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (metric("n", cpu=9), "reduce the usage of n by 3301m cpu"),  # 9 + 0.85 of 6.549 at most
        (
            metric("n", cpu=1, at="20:00:00"),
            "restore the koordlet of n, which reports its usage",
        ),
    ],
)
def test_remedy_for_a_busy_node(report: KubeObject, text: str) -> None:
    """The remedy is the usage to shed, or a koordlet that reports again."""
    explanation = measured(node("n", cpu=10), report, pod("p", 1))

    assert [(r.kind, r.text, r.sufficient, r.nodes) for r in explanation.remedies] == [
        ("change-node", text, True, ("n",))
    ]


def test_usage_without_pods_is_unknown() -> None:
    """Measured usage includes pods that a trial removes."""
    explanation = measured(
        node("n", cpu=10),
        metric("n", cpu=9, pods={"there": used(9)}),
        pod("there", 1, on="n"),
        pod("p", 1),
    )

    assert decisive(explanation) == {"node(s) cpu usage exceed threshold"}
    assert explanation.empty_cluster is None


def test_blocking_reservation_has_its_own_name() -> None:
    """The name of its reserve pod is internal."""
    kept = reservation("kept", 7, on="n")
    explanation = explained(node("n", cpu=8), kept, pod("p", 2), config=reserving())

    assert [remedy.pods for remedy in explanation.remedies if remedy.kind == "fewer-pods"] == [
        ("reservation/kept",)
    ]


def test_gang_is_not_reported_to_fit_on_an_empty_cluster() -> None:
    """Only a member that fits nowhere alone is reported."""
    one = explained(
        node("n", cpu=3), group("g", 4), *members("g", 4), config=BOTH, name="default/g-0"
    )
    assert one.empty_cluster is None

    big = explained(
        node("n", cpu=3), group("h", 2), *members("h", 2, cpu=4), config=BOTH, name="default/h-0"
    )
    assert big.empty_cluster is not None
    assert not big.empty_cluster.fits


def test_nominations_do_not_count_in_the_empty_cluster() -> None:
    """Without other pods there are no nominated pods either."""
    going = pod("there", 2, on="n", priority=1, deleted=True)
    going = replace(going, metadata=replace(going.metadata, finalizers=("x.io/last",)))
    first = pod("first", 2, priority=9)
    first = replace(first, status=replace(first.status, nominated_node_name="n"))
    explanation = explained(node("n", cpu=2), going, first, pod("p", 1, priority=5))

    assert explanation.empty_cluster is not None
    assert explanation.empty_cluster.fits


def test_pods_ahead_in_the_queue() -> None:
    """More important pods and older ones are ahead, gated ones are not."""
    gates = [{"name": "x.io/approval"}]
    waiting = [
        pod("low", 2, priority=1),
        pod("first", 2, priority=5),
        pod("gated", 2, priority=9, schedulingGates=gates),
        pod("high", 2, priority=9),
        pod("p", 2, priority=5),
    ]
    explanation = explained(node("n", cpu=1), *waiting)

    assert explanation.queue is not None
    assert explanation.queue.ahead == ("default/high", "default/first")
    assert explanation.queue.position == 3


def test_pod_with_required_affinity_is_not_reported_to_fit_alone() -> None:
    """One node is emptied at a time; the required pods run on the other one."""
    explanation = explained(
        node("n", cpu=2, zone="z"),
        node("m", cpu=1, zone="z"),
        pod("there", 2, on="n"),
        pod("wanted", 1, on="m", labels={"app": "db"}),
        pod("p", 2, affinity={"podAffinity": near("db")}),
    )

    assert explanation.verdict == "waits"
    assert explanation.empty_cluster is None


def test_gated_member_does_not_complete_its_gang() -> None:
    """The gang stays incomplete without its gate, with another node, and with smaller requests."""
    gated = pod(
        "g-0",
        4,
        labels={"pod-group.scheduling.sigs.k8s.io": "g"},
        schedulingGates=[{"name": "x.io/approval"}],
    )
    explanation = explained(node("n", cpu=2), group("g", 3), gated, config=BOTH, name="default/g-0")

    assert {cause.plugin for cause in explanation.causes} >= {"SchedulingGates", "Coscheduling"}
    assert {remedy.kind for remedy in explanation.remedies} >= {"open-gates", "gang"}
    assert not [remedy for remedy in explanation.remedies if remedy.sufficient]


def test_pod_with_node_name_gets_no_other_node() -> None:
    """A new node would have another name."""
    explanation = explained(
        node("n", cpu=2, labels={"kubernetes.io/hostname": "n"}),
        pod("there", 2, on="n", priority=9),
        pod("p", 2, nodeSelector={"kubernetes.io/hostname": "n"}),
    )

    assert [remedy.kind for remedy in explanation.remedies] == ["fewer-pods"]


def test_number_of_nodes_for_a_whole_gang() -> None:
    """Members of different sizes are placed on new nodes one by one."""
    mixed = [
        pod(f"g-{n}", cpu, labels={"pod-group.scheduling.sigs.k8s.io": "g"})
        for n, cpu in enumerate((3, 1, 3, 2))
    ]
    explanation = explained(
        node("n", cpu=4),
        pod("there", 4, on="n", priority=9),
        group("g", 4),
        *mixed,
        config=BOTH,
        name="default/g-3",
    )

    nodes = next(remedy for remedy in explanation.remedies if remedy.kind == "add-node")
    assert nodes.text == ("add 3 nodes like n: empty ones take the 4 members that find no place")
    assert nodes.sufficient


def test_explanation_of_a_gang_is_equal_for_all_members() -> None:
    """As many members as possible are placed, so the unplaced one is the same."""
    pods = [*members("g", 4, 1)]
    odd = replace(pods[1], spec=replace(pods[1].spec, node_selector={"gpu": "yes"}))
    world = [node("n", cpu=8), group("g", 4), pods[0], odd, *pods[2:]]
    explanations = [explained(*world, name=one.key, config=BOTH) for one in pods]

    assert "3 of 4 members find a place; pod default/g-1 is the next one" in explanations[0].gang
    assert len({(one.gang, one.causes, one.remedies) for one in explanations}) == 1


def test_quota_that_blocks_the_complete_gang_is_named() -> None:
    """Creating the missing member does not suffice, and the explanation has the reason."""
    label = {PREFIX + "name": "team"}
    pods = [
        replace(p, metadata=replace(p.metadata, labels={**p.metadata.labels, **label}))
        for p in members("g", 3, 1)
    ]
    explanation = explained(
        node("n", cpu=80), team("team", most=2), group("g", 4), *pods, name=pods[0].key, config=BOTH
    )

    assert [cause.plugin for cause in explanation.causes] == ["Coscheduling", "ElasticQuota"]
    assert explanation.causes[1].reason.endswith("exceedDimensions: [cpu]")
    (enough,) = [one for one in explanation.remedies if one.sufficient]
    assert enough.text.startswith("together: create 1 more member of gang default/g: ")
    assert enough.text.endswith("; and raise the max of quota team by cpu:2")


@pytest.mark.parametrize(
    ("free", "sizes", "most"),
    [
        ((6, 2), (3, 1, 4, 1, 3), 4),  # 3 and 3, 1 and 1
        ((2, 3, 6), (3, 4, 4, 5, 4), 2),
        ((2, 4, 5), (3, 5, 5), 2),
    ],
)
def test_gang_of_different_members_is_counted_in_the_best_order(
    free: tuple[int, ...], sizes: tuple[int, ...], most: int
) -> None:
    """Each member counts with its own requests; those that fit few nodes are tried first, too."""
    pods = [member(f"g-{n}", "g", cpu) for n, cpu in enumerate(sizes)]
    nodes = [node(f"n{n}", cpu=cpu) for n, cpu in enumerate(free)]
    world = [*nodes, group("g", len(sizes)), *pods]

    explanations = [explained(*world, name=one.key, config=BOTH) for one in pods]

    assert len({one.gang for one in explanations}) == 1
    assert f": {most} of {len(sizes)} members find a place" in explanations[0].gang
    (smaller,) = (one.text for one in explanations[0].remedies if one.kind == "gang")
    assert (
        smaller == f"set minMember of PodGroup default/g to {most}: that many members find a place"
    )


@pytest.mark.parametrize("position", [0, 1])
def test_limit_of_an_incomplete_gang_counts_each_member_with_its_own_requests(
    position: int,
) -> None:
    """One member is missing, and like the first one, whichever member is asked about."""
    label = {PREFIX + "name": "team"}
    pods = [member(f"g-{n}", "g", cpu, labels=label) for n, cpu in enumerate((6, 1))]
    explanation = explained(
        node("n", cpu=80),
        team("team", most=9),
        group("g", 3),
        *pods,
        name=pods[position].key,
        config=BOTH,
    )

    assert "ElasticQuota" in [cause.plugin for cause in explanation.causes]  # 6 + 1 + 6 exceed 9
    assert any("raise the max of quota team by cpu:4" in r.text for r in explanation.remedies)


def test_quota_with_room_for_the_complete_gang_is_no_cause() -> None:
    """The share of a quota grows with the requests of its pods."""
    pods = [member(f"g-{n}", "g", 3, labels={PREFIX + "name": "team"}) for n in range(2)]
    explanation = explained(
        node("n", cpu=80),
        team("team", most=50),
        group("g", 4),
        *pods,
        name="default/g-0",
        config=BOTH,
    )

    assert [cause.plugin for cause in explanation.causes] == ["Coscheduling"]
    assert any("create 2 more members" in one.text for one in explanation.remedies)


def test_pod_that_would_start_after_preemption_names_the_victims() -> None:
    world = [
        node("a", cpu=4),
        *(pod(f"low-{i}", 1, on="a", priority=0) for i in range(4)),
        pod("p", 3, priority=10),
    ]
    (explanation,) = explain_pods(world, ["default/p"])

    assert explanation.summary == (
        "it would be placed on a now, after the preemption of "
        "3 pods (default/low-1, default/low-2, default/low-3)"
    )
