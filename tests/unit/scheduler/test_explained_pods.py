"""Why a pod waits: every cause is named, none is invented, and what is said to help does."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.equipped_nodes import PLACES, machine
from tests.reservations import config as reserving
from tests.reservations import reservation
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import group, members
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.worlds import ZONE, configuration, embedded, made, metric, near, node, pod, spread, used

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.resource_names import BATCH_CPU
from koordinator.foundation.errors import InputError, NotFoundError
from koordinator.scheduler.explain import Explanation
from koordinator.scheduler.features.explanation.explainer import explain
from koordinator.simulator.explanations import explain_pods

CPU = "Insufficient cpu"
TAINTED = "node(s) had untolerated taint(s)"
CORDONED = "node(s) were unschedulable"


def explained(*objects: KubeObject, name: str = "default/p", **options: Any) -> Explanation:
    """Let the scheduler run until nothing moves, and ask about a pod."""
    one = embedded(*objects, **options)
    one.run_to_fixed_point()
    before = one.state.usage_log.position
    found = explain(one.scheduler.handle, name)
    one.state.validate()
    assert one.state.pods.by_key.keys() >= {
        p.key for p in one.cluster.list(Pod).items if p.spec.node_name
    }
    assert before <= one.state.usage_log.position
    return found


def decisive(found: Explanation) -> set[str]:
    return {cause.reason for cause in found.causes if cause.decisive}


def test_each_node_has_its_own_cause() -> None:
    """What keeps the pod from some node, alone, is named with the number of such nodes."""
    found = explained(
        node("full", cpu=2),
        node("infra", cpu=8, taints=["dedicated=infra:NoSchedule"]),
        node("away", cpu=8, unschedulable=True),
        pod("p", 4),
    )

    assert decisive(found) == {CPU, TAINTED, CORDONED}
    assert {cause.reason: (cause.nodes, cause.alone) for cause in found.causes} == {
        CPU: (1, 1),
        TAINTED: (1, 1),
        CORDONED: (1, 1),
    }
    assert found.summary.startswith("none of 3 nodes takes it")


def test_several_causes_on_one_node_are_all_named() -> None:
    """The first plugin that rejects a node hides the others from a condition, not from here."""
    found = explained(node("n", cpu=2, taints=["a=b:NoSchedule"]), pod("p", 4))

    assert decisive(found) == {CPU, TAINTED}
    near = found.nearest[0]
    assert near.lacks == {"cpu": "2"}
    assert set(near.details) == {"a=b:NoSchedule", "cpu: asks for 4, 2 of 2 free"}


def test_a_cause_that_would_not_have_to_go_is_not_decisive() -> None:
    """No node has the cpu; that one of them has a taint as well decides nothing."""
    found = explained(node("a", cpu=2), node("b", cpu=2, taints=["x=y:NoSchedule"]), pod("p", 4))

    assert decisive(found) == {CPU}
    assert {c.reason for c in found.causes if not c.decisive} == {TAINTED}


def test_a_gate_and_a_full_node_are_both_named() -> None:
    """What keeps a pod out of the queue does not hide what would keep it from the nodes."""
    gates = [{"name": "example.com/gate"}]
    found = explained(node("n", cpu=2), pod("p", 4, schedulingGates=gates))

    assert decisive(found) == {CPU, "waiting for scheduling gates: [example.com/gate]"}
    assert found.queue is not None
    assert found.queue.state == "gated"


def test_a_missing_claim_is_named_once() -> None:
    """Four plugins look the claim up; the user hears of it once, and of the full node too."""
    claims = [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]
    found = explained(node("n", cpu=2), pod("p", 4, volumes=claims))

    reasons = [cause.reason for cause in found.causes]
    assert reasons == ['persistentvolumeclaim "gone" not found', CPU]


def test_a_quota_says_by_how_much_it_is_short() -> None:
    """The remedy names the quota and the amount."""
    label = {PREFIX + "name": "team"}
    found = explained(
        node("n", cpu=100),
        team("team", most=3),
        pod("before", 2, labels=label, on="n"),
        pod("p", 2, labels=label),
        config=BOTH,
    )

    assert [c.plugin for c in found.causes] == ["ElasticQuota"]
    (remedy,) = found.remedies
    assert remedy.sufficient
    assert remedy.text == (
        "raise the max of quota team by cpu:1, or wait until pods of quota team that use cpu:1 end"
    )


def test_a_gang_is_explained_by_the_member_that_finds_no_place() -> None:
    """Any member tells how many find a place, and what the next one lacks."""
    found = explained(
        node("n", cpu=3), group("g", 4), *members("g", 4), config=BOTH, name="default/g-0"
    )

    assert found.gang.startswith("gang group default/g: 3 of 4 members find a place")
    assert decisive(found) == {CPU}
    assert found.nearest[0].lacks == {"cpu": "1"}


def test_a_gang_short_of_members_says_so() -> None:
    """Members before the queue have a cause, too."""
    found = explained(
        node("n", cpu=9), group("g", 3), *members("g", 2), config=BOTH, name="default/g-1"
    )

    assert len(found.causes) == 1
    assert "needs 3 members" in found.causes[0].reason
    assert found.queue is not None
    (woken_by,) = found.queue.woken_by
    assert woken_by == (
        "Coscheduling: a member of its gang comes or loses its gates, "
        "its PodGroup or Workload comes or changes"
    )


def test_pods_that_end_are_waited_for() -> None:
    """A pod that is being deleted makes room by itself: there is nothing to do, and it is said."""
    found = explained(node("n", cpu=2), pod("old", 2, on="n", deleted=True), pod("p", 1))

    assert [remedy.kind for remedy in found.remedies][:1] == ["wait"]
    assert found.remedies[0].pods == ("default/old",)


def test_who_may_preempt_and_may_not_is_said() -> None:
    """A pod that could make room by preemption but must not is told what forbids it."""
    found = explained(
        node("n", cpu=2),
        pod("low", 2, on="n", priority=1),
        pod("p", 2, priority=5, preemptionPolicy="Never"),
    )

    remedy = next(r for r in found.remedies if r.kind == "preempt")
    assert "preemptionPolicy is Never" in remedy.text


def test_a_pod_that_fits_nowhere_ever_is_told_so() -> None:
    """However empty the cluster is."""
    found = explained(node("n", cpu=2), pod("other", 2, on="n"), pod("p", 4))

    assert found.empty_cluster is not None
    assert not found.empty_cluster.fits
    assert found.empty_cluster.why == "it asks for 4 of cpu; the most that a node has is 2"


def test_a_pod_of_another_scheduler_is_told_so() -> None:
    """Nobody here will ever look at it."""
    found = explained(node("n", cpu=2), pod("p", 1, schedulerName="other"))

    assert found.summary.startswith("no profile schedules it")
    assert [(r.kind, r.text, r.tried) for r in found.remedies] == [
        (
            "change-pod",
            "let spec.schedulerName be default-scheduler, or run the scheduler that it names",
            False,
        )
    ]


def test_batch_amounts_of_an_empty_cluster_are_told_as_elsewhere() -> None:
    """In CPUs: nobody knows how much 6k is."""
    offered: dict[str, Any] = {BATCH_CPU: 4000}
    found = explained(node("n", **offered), pod("p", requests={BATCH_CPU: 6000}))

    assert found.empty_cluster is not None
    assert found.empty_cluster.why == (
        f"it asks for 6 CPUs (6000m) of {BATCH_CPU}; the most that a node has is 4 CPUs (4000m)"
    )


def test_a_pod_that_is_being_deleted_is_told_so() -> None:
    """Nobody schedules it any more, whatever its profile."""
    going = pod("p", 1, deleted=True)
    going = replace(going, metadata=replace(going.metadata, finalizers=("x.io/last",)))
    found = explained(node("n", cpu=2), going)

    assert found.summary == (
        "it is being deleted, so nobody schedules it any more; "
        "it goes when its finalizers [x.io/last] have"
    )


@pytest.mark.parametrize(
    ("there", "name", "told"),
    [
        (pod("p", phase="Succeeded", on="n"), "default/p", "it has ended: Succeeded"),
        (pod("p", phase="Failed"), "default/p", "it has ended: Failed"),
        (pod("p", on="m"), "default/p", "it is bound to node m, which does not exist"),
        (
            reservation("r", 1),
            "reservation/r",
            "no profile has the plugin Reservation, so nobody schedules it",
        ),
    ],
)
def test_what_no_scheduler_looks_at_is_told_so(there: KubeObject, name: str, told: str) -> None:
    """It is there, so it is no mistake to ask; but it does not wait."""
    (found,) = explain_pods([node("n", cpu=2), there], [name])

    assert (found.pod, found.summary, found.causes) == (name, told, ())


@pytest.mark.parametrize(
    ("phase", "summary"),
    [
        ("Running", "it runs on n"),
        ("Pending", "it is bound to n, where its containers have not all started"),
    ],
)
def test_a_pod_that_has_a_node_may_not_run_yet(phase: str, summary: str) -> None:
    """Its image may be missing, or its volume."""
    placed = pod("p", 1, on="n")
    one = embedded(node("n"), replace(placed, status=replace(placed.status, phase=phase)))
    one.run_to_fixed_point()

    assert explain(one.scheduler.handle, "default/p").summary == summary


def test_placed_and_unknown_pods() -> None:
    """One that runs has no causes; one that is not there is an error."""
    one = embedded(node("n", cpu=2), pod("p", 1))
    one.run_to_fixed_point()

    assert explain(one.scheduler.handle, "default/p").verdict == "placed"
    with pytest.raises(NotFoundError, match="default/q"):
        explain(one.scheduler.handle, "default/q")
    with pytest.raises(InputError, match="default/q"):
        explain_pods([node("n", cpu=2)], ["default/q"])


def test_the_start_is_foreseen_where_ends_are_known() -> None:
    """The queue is run forward: the more important pod gets the first place that is left."""
    objects = [
        node("n", cpu=2),
        pod("a", 1, on="n", started="08:00", activeDeadlineSeconds=3_600),
        pod("b", 1, on="n", started="08:00", activeDeadlineSeconds=7_200),
        pod("first", 1, priority=9, preemptionPolicy="Never"),
        pod("p", 1),
    ]
    at_half_past_eight_s = 1_699_950_600.0
    found = explain_pods(objects, ["default/p", "default/first"], now_s=at_half_past_eight_s)

    assert [one.forecast.at for one in found if one.forecast] == [
        "2023-11-14T10:00:00Z",
        "2023-11-14T09:00:00Z",
    ]


def test_nobody_waits_for_members_of_the_own_gang() -> None:
    """They have a place in thought only; a node more takes the two that lack one."""
    found = explained(
        node("n", cpu=2), group("g", 4), *members("g", 4), config=BOTH, name="default/g-0"
    )

    assert [(r.kind, r.text, r.sufficient) for r in found.remedies] == [
        ("add-node", "add a node like n: empty ones take the 2 members that find no place", True),
        ("gang", "let minMember of PodGroup default/g be 2: so many find a place", True),
    ]


def test_what_a_node_is_can_not_be_changed_by_a_label() -> None:
    """A label that others wait for can; the one that pods keep apart by should not."""
    found = explained(
        node("n", cpu=2, labels={"kubernetes.io/hostname": "n"}),
        pod("p", 1, nodeSelector={"kubernetes.io/hostname": "m"}),
    )
    assert not found.remedies

    other = explained(node("n", cpu=2), pod("p", 1, nodeSelector={"disk": "ssd"}))
    assert [r.text for r in other.remedies] == [
        "label n (disk=ssd)",
        "take disk=ssd out of its nodeSelector: n takes it then",
    ]


@pytest.mark.parametrize(
    ("report", "args", "told"),
    [
        (metric("n", cpu=8), {}, "cpu: 8 in use and 850m of the pod, of 6549m at most"),
        (
            metric("n", cpu=1, at="20:00:00"),
            {},
            "reported last at 2023-11-14T20:00:00Z",
        ),
        (metric("n", cpu=1, at=""), {}, "its report has no updateTime"),
        (
            metric("n", cpu=8, windows={("5m", "p95"): used(7)}),
            {"aggregated": {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95"}},
            "cpu: 7 in use and 850m of the pod, of 5049m at most",
        ),
    ],
)
def test_a_busy_node_tells_by_how_much(report: KubeObject, args: dict[str, Any], told: str) -> None:
    """Usage and estimates, and what is allowed; or how old the last report is."""
    config = configuration(
        pluginConfig=[{"name": "LoadAwareScheduling", "args": args}],
        plugins={"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}},
    )
    found = explained(node("n", cpu=10), report, pod("p", 1), config=config)

    assert [near.details for near in found.nearest] == [(told,)]


def test_a_node_that_could_not_hold_what_the_pod_takes_is_no_way_out() -> None:
    """The node has not so many CPUs, whoever runs there: BestEffort rejects it, too."""
    kept = {"node.koordinator.sh/reservation": '{"reservedCPUs": "0,1"}'}
    policy = {"node.koordinator.sh/numa-topology-policy": "BestEffort"}
    small = machine("m", zones=1, cores=2, topology=kept, labels=policy)
    found = explained(*small, pod("there", 1, on="m"), pod("p", 3), config=PLACES)

    assert found.summary == "none of 1 nodes takes it: 1 Insufficient NUMA cpu"
    assert found.empty_cluster is not None
    assert (found.empty_cluster.fits, found.empty_cluster.why) == (False, "Insufficient NUMA cpu")
    assert not found.remedies


def measured(*objects: KubeObject, **options: Any) -> Explanation:
    """Ask where nodes may be used up to 65 % of their CPU."""
    load = {"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}}
    return explained(*objects, config=configuration(plugins=load), **options)


def test_without_nodes_that_is_the_cause() -> None:
    """Programs read causes, not summaries."""
    found = explained(pod("p", 1))

    assert [cause.reason for cause in found.causes] == ["there are no nodes"]
    assert found.summary == "there are no nodes"


def test_what_two_plugins_say_of_one_claim_is_one_cause() -> None:
    """To VolumeZone, a claim that nobody has bound yet is a volume without a name."""
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
    found = explained(node("n"), at_once, claim, pod("p", 1, volumes=volumes))

    assert [(cause.plugin, cause.reason) for cause in found.causes] == [
        ("VolumeBinding, VolumeZone", "pod has unbound immediate PersistentVolumeClaims")
    ]


def bound_claim(volume: str, mode: str) -> tuple[KubeObject, list[dict[str, Any]]]:
    """Return a claim that has a volume, and the volumes of a pod that uses it."""
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


def test_a_volume_that_is_gone_is_one_cause() -> None:
    """Whatever each plugin calls it, and whether it says so of the pod or of every node."""
    claim, volumes = bound_claim("gone", "ReadWriteOnce")
    found = explained(node("n"), claim, pod("p", 1, volumes=volumes))

    assert [cause.reason for cause in found.causes] == ['persistentvolume "gone" not found']


def test_a_claim_for_one_pod_is_taken_on_new_nodes_too() -> None:
    """One node more does not help; the pod that has the claim has to go."""
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
    found = explained(
        node("n"),
        volume,
        claim,
        pod("there", 1, on="n", volumes=volumes),
        pod("p", 1, volumes=volumes),
    )

    assert [remedy.kind for remedy in found.remedies] == ["fewer-pods"]


def test_asking_for_less_does_not_make_what_no_node_has() -> None:
    """With fewer CPUs, the pod would wait for its GPU all the same."""
    found = explained(node("n", cpu=8), pod("p", 12, requests={"example.com/gpu": 1}))

    assert decisive(found) == {CPU, "Insufficient example.com/gpu"}
    assert [remedy.text for remedy in found.remedies] == [
        "add a node like n, but with 12 of cpu (it has 8) and 1 of example.com/gpu (it has 0)"
    ]

    kept = reservation("kept", 1, on="n", policy="Restricted")
    owner = pod("p", 8, requests={"example.com/gpu": 1}, labels={"app": "web"})
    beside = explained(node("n", cpu=8), kept, owner, config=reserving())
    assert not [remedy for remedy in beside.remedies if remedy.kind == "ask-less"]


def test_too_few_domains_are_told_as_that() -> None:
    """Spreading over three zones where there are two is no matter of how full they are."""
    labels = {"app": "web"}
    found = explained(
        node("a", zone="1"),
        node("b", zone="2"),
        *(pod(f"on-{name}", 1, on=name, labels=labels) for name in "ab"),
        pod("p", 1, labels=labels, topologySpreadConstraints=[spread(minDomains=3)]),
    )

    assert [near.details for near in found.nearest] == [
        (f"{ZONE}={zone} has 1 such pods, there are 2 domains where minDomains is 3, maxSkew is 1",)
        for zone in "12"
    ]


def test_a_change_of_the_node_and_pods_that_end_are_enough_together() -> None:
    """Neither of them alone; both are told in one remedy, and were tried together."""
    found = explained(
        node("n", cpu=2, unschedulable=True), pod("there", "1500m", on="n"), pod("p", 1)
    )

    assert [(r.kind, r.text, r.sufficient, r.pods) for r in found.remedies] == [
        (
            "change-node",
            "uncordon n, then it takes it when default/there has ended",
            True,
            ("default/there",),
        )
    ]


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (metric("n", cpu=9), "bring the use of n down by 3301m cpu"),  # 9 + 0.85 of 6.549 at most
        (
            metric("n", cpu=1, at="20:00:00"),
            "let the koordlet of n report again",
        ),
    ],
)
def test_a_busy_node_is_told_what_would_help(report: KubeObject, told: str) -> None:
    """How much less has to be in use, or that its report is too old."""
    found = measured(node("n", cpu=10), report, pod("p", 1))

    assert [(r.kind, r.text, r.sufficient, r.nodes) for r in found.remedies] == [
        ("change-node", told, True, ("n",))
    ]


def test_nobody_knows_what_a_busy_node_would_use_without_its_pods() -> None:
    """What was measured of pods that are gone in thought is measured still."""
    found = measured(
        node("n", cpu=10),
        metric("n", cpu=9, pods={"there": used(9)}),
        pod("there", 1, on="n"),
        pod("p", 1),
    )

    assert decisive(found) == {"node(s) cpu usage exceed threshold"}
    assert found.empty_cluster is None


def test_a_reservation_in_the_way_is_named_as_users_do() -> None:
    """Not by the pod that stands for it inside the scheduler."""
    kept = reservation("kept", 7, on="n")
    found = explained(node("n", cpu=8), kept, pod("p", 2), config=reserving())

    assert [remedy.pods for remedy in found.remedies if remedy.kind == "fewer-pods"] == [
        ("reservation/kept",)
    ]


def test_a_gang_is_not_said_to_fit_because_its_last_member_would() -> None:
    """Nobody has tried all of them on empty nodes; that one alone fits nowhere is known."""
    one = explained(
        node("n", cpu=3), group("g", 4), *members("g", 4), config=BOTH, name="default/g-0"
    )
    assert one.empty_cluster is None

    big = explained(
        node("n", cpu=3), group("h", 2), *members("h", 2, cpu=4), config=BOTH, name="default/h-0"
    )
    assert big.empty_cluster is not None
    assert not big.empty_cluster.fits


def test_a_node_kept_for_another_pod_is_not_kept_where_that_is_gone() -> None:
    """In a cluster without others, nobody is nominated either."""
    going = pod("there", 2, on="n", priority=1, deleted=True)
    going = replace(going, metadata=replace(going.metadata, finalizers=("x.io/last",)))
    first = pod("first", 2, priority=9)
    first = replace(first, status=replace(first.status, nominated_node_name="n"))
    found = explained(node("n", cpu=2), going, first, pod("p", 1, priority=5))

    assert found.empty_cluster is not None
    assert found.empty_cluster.fits


def test_who_waits_with_it_and_goes_first_is_before_it() -> None:
    """More important pods, and those that have waited longer; none whose gates are closed."""
    gates = [{"name": "x.io/approval"}]
    waiting = [
        pod("low", 2, priority=1),
        pod("first", 2, priority=5),
        pod("gated", 2, priority=9, schedulingGates=gates),
        pod("high", 2, priority=9),
        pod("p", 2, priority=5),
    ]
    found = explained(node("n", cpu=1), *waiting)

    assert found.queue is not None
    assert found.queue.ahead == ("default/high", "default/first")
    assert found.queue.position == 3


def test_a_pod_that_wants_others_near_is_not_said_to_fit_without_them() -> None:
    """One node is emptied in thought; those whom it wants run on the other one."""
    found = explained(
        node("n", cpu=2, zone="z"),
        node("m", cpu=1, zone="z"),
        pod("there", 2, on="n"),
        pod("wanted", 1, on="m", labels={"app": "db"}),
        pod("p", 2, affinity={"podAffinity": near("db")}),
    )

    assert found.verdict == "waits"
    assert found.empty_cluster is None


def test_a_member_behind_its_gate_is_not_enough_for_its_gang() -> None:
    """Its gate, a node and less to ask for together leave the gang short all the same."""
    gated = pod(
        "g-0",
        4,
        labels={"pod-group.scheduling.sigs.k8s.io": "g"},
        schedulingGates=[{"name": "x.io/approval"}],
    )
    found = explained(node("n", cpu=2), group("g", 3), gated, config=BOTH, name="default/g-0")

    assert {cause.plugin for cause in found.causes} >= {"SchedulingGates", "Coscheduling"}
    assert {remedy.kind for remedy in found.remedies} >= {"open-gates", "gang"}
    assert not [remedy for remedy in found.remedies if remedy.sufficient]


def test_who_names_its_node_is_not_sent_to_another() -> None:
    """A new node would have another name, and the pod means this one."""
    found = explained(
        node("n", cpu=2, labels={"kubernetes.io/hostname": "n"}),
        pod("there", 2, on="n", priority=9),
        pod("p", 2, nodeSelector={"kubernetes.io/hostname": "n"}),
    )

    assert [remedy.kind for remedy in found.remedies] == ["fewer-pods"]


def test_a_gang_is_told_how_many_nodes_all_of_it_needs() -> None:
    """Members of different sizes are put on new nodes one after the other."""
    mixed = [
        pod(f"g-{n}", cpu, labels={"pod-group.scheduling.sigs.k8s.io": "g"})
        for n, cpu in enumerate((3, 1, 3, 2))
    ]
    found = explained(
        node("n", cpu=4),
        pod("there", 4, on="n", priority=9),
        group("g", 4),
        *mixed,
        config=BOTH,
        name="default/g-3",
    )

    nodes = next(remedy for remedy in found.remedies if remedy.kind == "add-node")
    assert nodes.text == ("add 3 nodes like n: empty ones take the 4 members that find no place")
    assert nodes.sufficient


def test_a_gang_is_explained_alike_whichever_member_is_named() -> None:
    """As many members as possible are placed; the one that finds no place is the same for all."""
    pods = [*members("g", 4, 1)]
    odd = replace(pods[1], spec=replace(pods[1].spec, node_selector={"gpu": "yes"}))
    world = [node("n", cpu=8), group("g", 4), pods[0], odd, *pods[2:]]
    told = [explained(*world, name=one.key, config=BOTH) for one in pods]

    assert "3 of 4 members find a place; pod default/g-1 is the next one" in told[0].gang
    assert len({(one.gang, one.causes, one.remedies) for one in told}) == 1


def test_the_quota_that_would_refuse_a_whole_gang_is_named_while_members_are_missing() -> None:
    """Making the missing member is not enough, and the reader learns why."""
    label = {PREFIX + "name": "team"}
    pods = [
        replace(p, metadata=replace(p.metadata, labels={**p.metadata.labels, **label}))
        for p in members("g", 3, 1)
    ]
    found = explained(
        node("n", cpu=80), team("team", most=2), group("g", 4), *pods, name=pods[0].key, config=BOTH
    )

    assert [cause.plugin for cause in found.causes] == ["Coscheduling", "ElasticQuota"]
    assert not any(remedy.sufficient for remedy in found.remedies)
    assert any("raise the max of quota team by cpu:2" in one.text for one in found.remedies)
