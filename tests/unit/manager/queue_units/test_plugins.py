"""Quotas other than ElasticQuotas: a tree in one object, ResourceQuotas, or none."""

import json
from typing import Any

import pytest
from tests.unit.manager.queue_units.worlds import NAMESPACE, World, job, quota

from koordinator.api.core import Namespace
from koordinator.api.elastic_quota import ElasticQuotaTree
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import JsonObject
from koordinator.api.queue_unit import Queue
from koordinator.api.workload import Job
from koordinator.manager.queue_units.configuration import QueueConfiguration, UnitPlugin

FIRM = {"quota.scheduling.koordinator.sh/preemptible": "false"}


def node(name: str, most: int | None = None, *children: JsonObject, **more: Any) -> JsonObject:
    """Return a quota of a tree; ``min_cpu`` is its minimum."""
    limits = {} if most is None else {"cpu": most}
    made = {"name": name, "max": limits | more.pop("max", {}), "children": list(children)}
    if "min_cpu" in more:
        made["min"] = {"cpu": more.pop("min_cpu")}
    return made | more


def tree(*children: JsonObject, most: int = 100, **more: Any) -> JsonObject:
    labels = more.pop("labels", {})
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "elasticquotatree", "namespace": "kube-system", "labels": labels},
        "spec": {"root": node("root", most, *children, **more)},
    }


def namespace(name: str, quotas: str = "") -> JsonObject:
    marks = {"koord-queue/available-quota": quotas} if quotas else {}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "annotations": marks},
    }


def queue_for(quotas: str, policy: str = "Priority", name: str = "own") -> JsonObject:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {"kube-queue/available-quota": quotas},
            "labels": {"create-by-kubequeue": "false"},
        },
        "spec": {"queuePolicy": policy},
    }


def into(queue: str, made: JsonObject) -> JsonObject:
    """Return a job that names its queue."""
    made["metadata"]["annotations"] = {"kube-queue/queue-name": queue}
    return made


def tree_world(*objects: JsonObject, **options: Any) -> World:
    plugins = frozenset((UnitPlugin.PRIORITY, UnitPlugin.ELASTIC_QUOTA))
    oversold = options.pop("checks_oversold", False)
    return World(*objects, configuration=QueueConfiguration(plugins, oversold), **options)


def settled(*objects: JsonObject, **options: Any) -> World:
    world = tree_world(*objects, **options)
    world.settle()
    return world


def why(world: World, name: str) -> str:
    return world.unit(name).status.message


# -- a tree ---------------------------------------------------------------------------------------


def test_a_unit_counts_in_its_quota_and_in_all_above_it() -> None:
    """Up to the maximum of each."""
    world = settled(
        tree(node("team", 4, node("a", 3), node("b", 3))),
        job("one", 3, quota="a"),
        job("two", 2, quota="b"),
        job("three", 1, quota="b"),
    )

    assert world.running() == {"one", "three"}
    assert why(world, "two") == (
        "quota root/team has no room: requested cpu:2, used cpu:4, limit cpu:4; insufficient cpu"
    )


def test_a_job_without_quota_counts_in_that_of_its_namespace() -> None:
    """The tree lists the namespaces of each quota."""
    world = settled(
        tree(node("a", 1, namespaces=["default"])), job("one", quota=""), job("two", quota="")
    )
    assert len(world.running()) == 1
    lost = settled(tree(node("a", 1)), job("one", quota=""))
    assert why(lost, "one") == "the job names no quota, and no quota has namespace default"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (tree(), "there is no quota a"),
        (tree(node("a", 1), node("b", 1, node("a", 1))), "there is more than one quota a"),
    ],
)
def test_a_unit_whose_quota_is_not_known_waits(spec: JsonObject, problem: str) -> None:
    """The message of the unit has the reason."""
    world = settled(spec, job("one", quota="a"))

    assert (world.running(), why(world, "one")) == (set(), problem)


def test_only_a_tree_in_kube_system_counts() -> None:
    """Of several the oldest."""
    elsewhere = tree(node("a", 9))
    elsewhere["metadata"]["namespace"] = "default"
    world = settled(elsewhere, job("one", quota="a"))

    assert not world.running()


def test_the_number_of_jobs_may_be_limited() -> None:
    """``kube-queue/max-jobs``, or ``koord-queue/max-jobs`` since 1.8."""
    for prefix in ("kube-queue", "koord-queue"):
        world = settled(
            tree(node("a", 9, max={f"{prefix}/max-jobs": 2})),
            *(job(name, quota="a") for name in ("one", "two", "three")),
        )
        assert len(world.running()) == 2
        assert why(world, "two") == "quota root/a has 2 jobs of at most 2"


def test_the_tree_may_limit_how_many_jobs_may_be_preempted() -> None:
    """All together; those that may not be preempted don't count."""
    world = settled(
        tree(node("a", 9, min_cpu=9), labels={"kube-queue/max-preempible-jobs": "1"}),
        job("one", quota="a"),
        job("two", quota="a"),
        job("firm", quota="a", labels=FIRM),
    )

    assert world.phases() == {"one": "Running", "two": "Enqueued", "firm": "Running"}


def test_non_preemptible_units_are_limited_to_the_minimum() -> None:
    """The rest is borrowed, by those who may have to go."""
    world = settled(
        tree(node("a", 8, min_cpu=2)),
        job("firm", 2, quota="a", labels=FIRM, priority=9),
        job("more", 1, quota="a", labels=FIRM, priority=8),
        job("loose", 6, quota="a"),
    )

    assert world.running() == {"firm", "loose"}
    assert "minimum cpu:2; insufficient cpu" in why(world, "more")


def test_a_quota_may_preempt_for_more_important_units() -> None:
    """The attribute of the quota overrides the policy of the queue."""
    world = settled(
        tree(node("a", 2, attributes={"preempt-policy": "PreemptLowerPriority"})),
        job("low", 2, quota="a"),
    )
    world.add(job("high", 2, quota="a", priority=5))
    world.settle()

    assert world.running() == {"high"}


def test_what_a_quota_does_not_lend_stays_its_own() -> None:
    """Attribute lendlimit: of the minimum 4 it lends 1."""
    world = settled(
        tree(
            node("a", 8, min_cpu=4, attributes={"alibabacloud.com/lendlimit": '{"cpu": "1"}'}),
            node("b", 8),
            most=8,
        ),
        job("large", 6, quota="b"),
        job("fits", 5, quota="b"),
    )
    assert world.running() == {"fits"}
    world.add(job("own", 3, quota="a"))
    world.settle()
    assert world.running() == {"fits", "own"}


def test_quota_at_its_minimum_waits_for_quotas_below_theirs() -> None:
    """Attribute checkQuotaOversold: while units wait there, and for requested resources."""
    spec = tree(node("a", 8, min_cpu=2), node("b", 8, min_cpu=4), most=8)
    objects = (spec, job("a1", 3, quota="a"), job("b1", 9, quota="b"), job("a2", 1, quota="a"))
    assert settled(*objects).running() == {"a1", "a2"}

    world = settled(*objects, checks_oversold=True)
    assert world.running() == {"a1"}
    assert why(world, "a2") == (
        "quota root/a has reached its minimum, and units are pending in quota root/b, "
        "which is below its minimum"
    )
    world.cluster.delete(Job, "b1", "default")
    world.settle()
    assert world.running() == {"a1", "a2"}


def test_oversold_limits_are_so_many_times_as_large() -> None:
    """Of all quotas."""
    world = settled(
        tree(node("a", 2), most=2),
        job("one", 2, quota="a"),
        job("two", 1, quota="a"),
        job("three", 1, quota="a"),
        oversell_rate=1.5,
    )

    assert len(world.running()) == 2


def test_each_quota_of_the_tree_has_a_queue_while_it_exists() -> None:
    """Annotations of a Queue name its quota; Queues of users stay."""
    world = settled(tree(node("Team_A", 2)), queue_for("Team_A"))
    made = {
        it.metadata.annotations["koord-queue/quota-fullname"]: it
        for it in world.cluster.list(Queue).items
        if it.metadata.name != "own"
    }
    assert made.keys() == {"root", "root/Team_A"}
    metadata = made["root/Team_A"].metadata
    assert metadata.name.startswith("root-team-a-")
    assert metadata.labels == {"create-by-koordqueue": "true"}
    assert metadata.annotations["koord-queue/parent-quota-fullname"] == "root"

    patch = {"spec": {"root": {"children": [node("new", 1)]}}}
    world.cluster.patch(ElasticQuotaTree, "elasticquotatree", "kube-system", patch)
    world.settle()
    names = {
        it.metadata.annotations.get("koord-queue/quota-fullname")
        for it in world.cluster.list(Queue).items
    }
    assert names == {"root", "root/new", None}


def test_queues_of_a_tree_need_not_be_made() -> None:
    """Gate ElasticQuotaTreeBuildQueueForQuota=false."""
    world = settled(tree(node("a", 2)), job("one", quota="a"), makes_queues=False)

    assert not world.cluster.list(Queue).items
    assert why(world, "one") == "quota root/a has no queue"


def test_a_job_may_name_its_queue() -> None:
    """The queue must take the job's quota; quotas may share a queue, and block separately."""
    world = settled(
        tree(node("a", 2), node("b", 2)),
        queue_for("a,b", "Block"),
        into("own", job("large", 9, quota="a", priority=9)),
        into("own", job("small", 1, quota="a")),
        into("own", job("other", 1, quota="b")),
    )
    assert world.running() == {"other"}
    assert {world.unit(name).spec.queue for name in ("large", "small", "other")} == {"own"}
    shown = world.cluster.get(Queue, "own", NAMESPACE).status.queue_item_details["active"]
    assert [it.name for it in shown] == ["large", "small"]


@pytest.mark.parametrize(
    ("quotas", "problem"),
    [("b", "queue own does not accept quota a"), (None, "there is no queue own")],
)
def test_unit_of_a_queue_without_its_quota_waits(quotas: str | None, problem: str) -> None:
    """The message names the queue and the quota."""
    queues = () if quotas is None else (queue_for(quotas),)
    world = settled(tree(node("a", 2)), *queues, into("own", job("one", quota="a")))

    assert (world.running(), why(world, "one")) == (set(), problem)


def test_any_quota_may_use_a_queue_for_all() -> None:
    """Annotation available-quota: *."""
    world = settled(tree(node("a", 2)), queue_for("*"), into("own", job("one", quota="a")))

    assert world.running() == {"one"}


def test_a_namespace_may_use_the_quotas_that_it_names() -> None:
    """Gate ElasticQuotaTreeCheckAvailableQuota; a tenant can't count in the quota of another."""
    for allowed, runs in (("a,c", {"one"}), ("b", set()), ("", set())):
        world = settled(
            tree(node("a", 2)),
            namespace("default", allowed),
            job("one", quota="a"),
            checks_available=True,
        )
        assert world.running() == runs
    assert why(world, "one") == "quota a is not available in namespace default"


def test_namespace_lists_the_queues_for_its_quotas() -> None:
    """In an annotation, as long as it names quotas."""
    world = settled(
        tree(node("a", 2)),
        queue_for("a,c"),
        queue_for("*", name="any"),
        namespace("default", "a,b"),
    )
    marks = world.cluster.get(Namespace, "default", "").metadata.annotations
    assert json.loads(marks["koord-queue/available-queue"]) == {"any": ["a", "b"], "own": ["a"]}
    removal = {"metadata": {"annotations": {"koord-queue/available-quota": None}}}
    world.cluster.patch(Namespace, "default", "", removal)
    world.settle()
    marks = world.cluster.get(Namespace, "default", "").metadata.annotations
    assert "koord-queue/available-queue" not in marks


def test_running_jobs_count_when_the_tree_is_added_or_deleted() -> None:
    """A recreated tree with the same quotas still counts running jobs."""
    world = settled(tree(node("a", 2)), job("one", 2, quota="a"))
    world.cluster.delete(ElasticQuotaTree, "elasticquotatree", "kube-system")
    world.settle()
    assert world.running() == {"one"}
    assert world.cluster.list(Queue).items
    world.add(tree(node("a", 2)), job("two", 1, quota="a"))
    world.settle()
    assert world.running() == {"one"}


def test_the_original_s_scenario_of_an_intelligent_queue() -> None:
    """An important unit that does not fit blocks all others; without it they are admitted.

    Source: koord-queue pkg/test/e2e/test.intelligent.sh.
    """
    world = tree_world(
        tree(node("child-1", 8, min_cpu=4), node("child-2", 8, min_cpu=4), most=10),
        queue_for("child-1", "Intelligent"),
    )
    for name, cpu, priority in (
        ("pi-high-1", 5, 5),
        ("pi-high-2", 1, 5),
        ("pi-low-1", 5, 3),
        ("pi-low-2", 1, 3),
    ):
        world.add(into("own", job(name, cpu, pods=2, quota="child-1", priority=priority)))
    world.settle()
    shown = world.cluster.get(Queue, "own", NAMESPACE).status.queue_item_details["active"]
    assert [(it.name, it.position) for it in shown] == [
        ("pi-high-1", 1),
        ("pi-high-2", 2),
        ("pi-low-1", 3),
        ("pi-low-2", 4),
    ]
    assert not world.running()
    world.cluster.delete(Job, "pi-high-1", "default")
    world.settle()
    assert world.running() == {"pi-high-2", "pi-low-2"}


# -- namespaces, and none at all ------------------------------------------------------------------


def resource_quota(name: str, **hard: int) -> JsonObject:
    amounts = {key.replace("_", "."): amount for key, amount in hard.items()}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"hard": amounts},
    }


def grouped(*objects: JsonObject, plugins: tuple[UnitPlugin, ...]) -> World:
    chosen = frozenset((UnitPlugin.PRIORITY, *plugins))
    world = World(*objects, configuration=QueueConfiguration(chosen))
    world.settle()
    return world


NAMESPACES = (UnitPlugin.DEFAULT_GROUP, UnitPlugin.RESOURCE_QUOTA)


@pytest.mark.parametrize("name", ["cpu", "requests_cpu"])
def test_units_have_the_room_of_their_namespace(name: str) -> None:
    """The ResourceQuota is the limit; all wait in the queue ``default``, which is created."""
    world = grouped(
        resource_quota("only", **{name: 2}),
        *(job(each, quota="") for each in ("one", "two", "three")),
        plugins=NAMESPACES,
    )
    assert len(world.running()) == 2
    assert why(world, "two").startswith("ResourceQuota only has no room: requested cpu:1")
    assert {it.metadata.name for it in world.cluster.list(Queue).items} == {"default"}
    assert world.unit("two").spec.queue == "default"
    world.end("one")
    world.settle()
    assert len(world.running()) == 2


def test_resource_quota_named_like_the_namespace_is_used() -> None:
    """Without a ResourceQuota of that name no unit is admitted."""
    one, two = resource_quota("one", cpu=1), resource_quota("default", cpu=2)
    assert grouped(one, two, job("a", 2, quota=""), plugins=NAMESPACES).running() == {"a"}
    for objects, problem in (
        ((one, resource_quota("three", cpu=3)), "2 ResourceQuotas, none named default"),
        ((), "no ResourceQuota"),
    ):
        world = grouped(*objects, job("a", quota=""), plugins=NAMESPACES)
        assert why(world, "a") == f"namespace default has {problem}"


def test_all_units_are_admitted_without_a_quota() -> None:
    """Plugin DefaultGroup alone."""
    world = grouped(job("a", 1000, quota=""), plugins=(UnitPlugin.DEFAULT_GROUP,))

    assert world.running() == {"a"}


def test_all_plugins_that_are_on_must_have_room() -> None:
    """ElasticQuotaV2 and ResourceQuota."""
    plugins = (UnitPlugin.ELASTIC_QUOTA_V2, UnitPlugin.RESOURCE_QUOTA)
    world = grouped(
        quota(cpu=4),
        resource_quota("only", cpu=2),
        job("a", 2),
        job("b", 2),
        job("c", 5, priority=9),
        plugins=plugins,
    )

    assert len(world.running()) == 1
    assert why(world, "c").startswith("quota team has no room")


def test_queues_elsewhere_don_t_count() -> None:
    """A tenant can't change the rules of a queue by one of the same name in his namespace."""
    fake = queue_for("*", "Block", name="team")
    fake["metadata"]["namespace"] = "default"
    world = World(quota(cpu=1), fake, job("large", 9, priority=3), job("small", 1))
    world.settle()

    assert world.running() == {"small"}
    assert {it.metadata.namespace for it in world.cluster.list(Queue).items} == {
        "default",
        NAMESPACE,
    }
    assert QUOTA_NAME in world.job("small").metadata.labels
