"""Sidecars and init containers get what they were promised, and their pods the room for it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.nodes import LAYOUT, Tree, machine, pod, slo
from tests.unit.koordlet.intents import values

from koordinator.api.pod import Container, ContainerStatus, Pod
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.hooks.batch_resources import plan_batch_resources
from koordinator.koordlet.hooks.cpu_qos import plan_group_identity
from koordinator.koordlet.hooks.cpuset import plan_cpusets
from koordinator.koordlet.intents import SetResctrl
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.eviction import StrategyInputs, choose_with_copilot
from koordinator.koordlet.qos.memory_qos import plan_memory_qos
from koordinator.koordlet.qos.node_pressure import cpu_tasks
from koordinator.koordlet.qos.resctrl import ResctrlFacts, plan_class_resctrl, plan_pod_resctrl
from koordinator.koordlet.view.pods import PodView, pod_view

GIB = 1 << 30
ENDED = {"terminated": {"exitCode": 0}}


def with_init(
    main: Pod,
    *others: Container,
    ended: tuple[str, ...] = (),
    ephemeral: bool = False,
) -> Pod:
    """Return the pod with started init containers, and maybe an ephemeral one."""
    done = decode_state(ENDED)
    statuses = tuple(
        ContainerStatus(
            name=each.name,
            container_id=f"containerd://{main.metadata.name}-{each.name}",
            **({"state": done} if each.name in ended else {}),
        )
        for each in others
    )
    debug = (ContainerStatus(name="debug", container_id="containerd://debug"),) if ephemeral else ()
    status = replace(
        main.status, init_container_statuses=statuses, ephemeral_container_statuses=debug
    )
    spec = replace(main.spec, init_containers=others)
    return replace(main, spec=spec, status=status)


def decode_state(state: Any) -> Any:
    """Return a state of a container."""
    made = pod("x", containerStatuses=[{"name": "c0", "state": state}])
    return made.status.container_statuses[0].state


def container(name: str, *, sidecar: bool, **amounts: int | str) -> Container:
    """Return an init container whose requests and limits are the same."""
    keys = {key.replace("batch_", "kubernetes.io/batch-"): value for key, value in amounts.items()}
    made = pod("x", requests=keys, limits=keys).spec.containers[0]
    return replace(made, name=name, restart_policy="Always" if sidecar else None)


def folders(view: PodView) -> dict[str, str]:
    """Return the folders of the containers by their names."""
    return {each.name: each.folder for each in view.containers}


def test_a_pod_has_all_containers_that_run() -> None:
    """Main containers first; init containers that have ended are omitted."""
    made = with_init(
        pod("a", "LS"),
        container("setup", sidecar=False),
        container("proxy", sidecar=True),
        container("migrate", sidecar=False),
        ended=("setup",),
        ephemeral=True,
    )

    assert [each.name for each in pod_view(made, LAYOUT).containers] == [
        "c0",
        "proxy",
        "migrate",
        "debug",
    ]


def test_batch_resources_of_a_sidecar() -> None:
    """The pod has room for both, each container its own."""
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 1000,
        "kubernetes.io/batch-memory": GIB,
    }
    made = with_init(
        pod("a", "BE", requests=batch, limits=batch),
        container("proxy", sidecar=True, batch_cpu=500, batch_memory=2 * GIB),
    )
    tree = Tree()
    view = tree.add_pod(made)

    planned = plan_batch_resources(tree.view(view))

    of = folders(view)
    assert values(planned, CgroupFile.MEMORY_LIMIT) == {
        view.folder: str(3 * GIB),
        of["c0"]: str(GIB),
        of["proxy"]: str(2 * GIB),
    }
    assert values(planned, CgroupFile.CFS_QUOTA) == {
        view.folder: "150000",
        of["c0"]: "100000",
        of["proxy"]: "50000",
    }
    assert values(planned, CgroupFile.CPU_SHARES) == {
        view.folder: "1536",
        of["c0"]: "1024",
        of["proxy"]: "512",
    }


@pytest.mark.parametrize(("sidecar", "limit"), [(True, "-1"), (False, str(GIB))])
def test_an_init_container_without_limit(*, sidecar: bool, limit: str) -> None:
    """A sidecar leaves the pod without limit; a container that ends has the pod's limit."""
    batch: dict[str, str | int] = {"kubernetes.io/batch-memory": GIB}
    made = with_init(pod("a", "BE", limits=batch), container("init", sidecar=sidecar))
    tree = Tree()
    view = tree.add_pod(made)

    planned = plan_batch_resources(tree.view(view))

    assert values(planned, CgroupFile.MEMORY_LIMIT)[view.folder] == limit


def test_an_annotation_of_before_leaves_init_containers_to_the_spec() -> None:
    """The webhook listed main containers only."""
    spec = '{"containers":{"c0":{"limits":{"kubernetes.io/batch-memory":"1Gi"}}}}'
    made = with_init(
        pod("a", "BE", annotations={"node.koordinator.sh/extended-resource-spec": spec}),
        container("proxy", sidecar=True, batch_memory=2 * GIB),
    )
    tree = Tree()
    view = tree.add_pod(made)

    planned = plan_batch_resources(tree.view(view))

    assert values(planned, CgroupFile.MEMORY_LIMIT)[view.folder] == str(3 * GIB)
    assert values(planned, CgroupFile.MEMORY_LIMIT)[folders(view)["proxy"]] == str(2 * GIB)


@pytest.mark.parametrize("is_annotated", [True, False])
def test_containers_without_batch_resources_keep_what_the_kubelet_gave(
    *, is_annotated: bool
) -> None:
    """A sidecar that another webhook added: its own values stay, and the pod has room for them."""
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 1000,
        "kubernetes.io/batch-memory": GIB,
    }
    spec = json.dumps({"containers": {"c0": {"requests": batch, "limits": batch}}})
    annotations = {"node.koordinator.sh/extended-resource-spec": spec} if is_annotated else {}
    made = with_init(
        pod("a", "BE", requests=batch, limits=batch, annotations=annotations),
        container("proxy", sidecar=True, cpu=2, memory=2 * GIB),
    )
    tree = Tree()
    view = tree.add_pod(made)

    planned = plan_batch_resources(tree.view(view))

    main = folders(view)["c0"]
    shares = {view.folder: "3072", main: "1024"}
    assert values(planned, CgroupFile.CPU_SHARES) == shares
    assert values(planned, CgroupFile.CFS_QUOTA) == {view.folder: "300000", main: "100000"}
    limits = {view.folder: str(3 * GIB), main: str(GIB)}
    assert values(planned, CgroupFile.MEMORY_LIMIT) == limits


def test_batch_cpu_beside_native_memory() -> None:
    """Each resource of a container has one writer: the agent for batch, otherwise the kubelet."""
    mixed: dict[str, str | int] = {"kubernetes.io/batch-cpu": 500, "memory": GIB}
    tree = Tree()
    view = tree.add_pod(pod("a", "BE", requests=mixed, limits=mixed))

    planned = plan_batch_resources(tree.view(view))

    assert values(planned, CgroupFile.CFS_QUOTA)[folders(view)["c0"]] == "50000"
    assert values(planned, CgroupFile.MEMORY_LIMIT) == {view.folder: str(GIB)}


@pytest.mark.parametrize(
    "overhead",
    [
        {"cpu": "250m", "memory": "128Mi"},
        {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "128Mi"},
    ],
)
def test_a_batch_pod_has_room_for_its_overhead(overhead: dict[str, str]) -> None:
    """The virtual machine of the sandbox uses it; containers keep their own amounts."""
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 1000,
        "kubernetes.io/batch-memory": GIB,
    }
    made = pod("a", "BE", requests=batch, limits=batch)
    amounts = {name: Quantity.parse(text) for name, text in overhead.items()}
    tree = Tree()
    view = tree.add_pod(replace(made, spec=replace(made.spec, overhead=amounts)))

    planned = plan_batch_resources(tree.view(view))

    main = folders(view)["c0"]
    assert values(planned, CgroupFile.CPU_SHARES) == {view.folder: "1280", main: "1024"}
    assert values(planned, CgroupFile.CFS_QUOTA) == {view.folder: "125000", main: "100000"}
    assert values(planned, CgroupFile.MEMORY_LIMIT)[view.folder] == str(GIB + 128 * (1 << 20))


def test_a_normalized_batch_pod_takes_its_native_containers() -> None:
    """The kernel (cgroup v1) rejects a container whose quota is above that of its pod."""
    batch: dict[str, str | int] = {"kubernetes.io/batch-cpu": 100}
    made = with_init(
        pod("a", "BE", requests=batch, limits=batch), container("proxy", sidecar=True, cpu=2)
    )
    tree = Tree()
    view = tree.add_pod(made)
    ratio = {"node.koordinator.sh/cpu-normalization-ratio": "2.00"}

    planned = plan_batch_resources(tree.view(view, machine_=machine(annotations=ratio)))

    main = folders(view)["c0"]
    assert values(planned, CgroupFile.CFS_QUOTA) == {view.folder: "200000", main: "5000"}


amounts = st.integers(1, 8).map(lambda gib: gib * GIB)
mains_of_pods = st.lists(st.tuples(amounts, st.booleans()), min_size=1, max_size=3)
inits_of_pods = st.lists(st.tuples(st.booleans(), amounts, st.booleans()), max_size=4)


@settings(max_examples=examples(20))
@given(mains_of_pods, inits_of_pods, st.sampled_from([0, GIB]))
def test_a_pod_has_room_for_every_moment_of_its_life(
    mains: list[tuple[int, bool]], inits: list[tuple[bool, int, bool]], overhead: int
) -> None:
    """Init containers run one after the other, beside the sidecars before them.

    The kubelet sets the limits of containers with native memory, the agent all others.
    """
    moments, running = [], 0
    for is_sidecar, amount, _ in inits:
        moments.append(running + amount)
        running += amount if is_sidecar else 0
    moments.append(running + sum(amount for amount, _ in mains))
    batch: dict[str, str | int] = {"kubernetes.io/batch-memory": GIB}
    made = pod("a", "BE", limits=batch, containers=len(mains))

    def of(name: str, amount: int, *, is_native: bool, sidecar: bool = False) -> Container:
        key = "memory" if is_native else "batch_memory"
        return container(name, sidecar=sidecar, **{key: amount})

    own = tuple(
        replace(each, resources=of("x", amount, is_native=is_native).resources)
        for each, (amount, is_native) in zip(made.spec.containers, mains, strict=True)
    )
    others = [
        of(f"i{n}", amount, is_native=is_native, sidecar=is_sidecar)
        for n, (is_sidecar, amount, is_native) in enumerate(inits)
    ]
    spec = replace(made.spec, containers=own, overhead={"memory": Quantity.parse(str(overhead))})
    made = with_init(replace(made, spec=spec), *others)
    tree = Tree()
    view = tree.add_pod(made)

    limits = values(plan_batch_resources(tree.view(view)), CgroupFile.MEMORY_LIMIT)

    of_agent = [is_native for *_, is_native in (*mains, *inits)].count(False)
    assert len(limits) == (1 + of_agent if of_agent else 0)
    assert not of_agent or limits[view.folder] == str(max(moments) + overhead)


def test_a_sidecar_is_on_the_cpus_of_its_pod_and_of_its_class() -> None:
    """CPU set, quota and group identity, as the main container has them."""
    status = '{"cpuset":"0-1"}'
    made = with_init(
        pod(
            "a",
            "LSR",
            requests={"cpu": 1},
            limits={"cpu": 1},
            annotations={"scheduling.koordinator.sh/resource-status": status},
        ),
        container("proxy", sidecar=True, cpu=1),
    )
    tree = Tree()
    view = tree.add_pod(made)
    on = {"cpuQOS": {"enable": True}}
    seen = tree.view(view, slo=slo(resourceQOSStrategy={"lsrClass": on}))

    cpusets = values(plan_cpusets(seen), CgroupFile.CPUSET)
    quotas = values(plan_cpusets(seen), CgroupFile.CFS_QUOTA)
    identities = values(plan_group_identity(seen), CgroupFile.BVT_WARP)

    proxy = folders(view)["proxy"]
    assert (cpusets[proxy], quotas[proxy], identities[proxy]) == ("0-1", "-1", "2")


def test_memory_qos_protects_a_sidecar() -> None:
    """The sidecar's requests are protected in its cgroup and the pod's; page cache up to limits."""
    made = with_init(
        pod("a", "LS", requests={"memory": GIB}, limits={"memory": GIB}),
        container("proxy", sidecar=True, memory=2 * GIB),
    )
    tree = Tree()
    view = tree.add_pod(made)
    qos = {"enable": True, "minLimitPercent": 100, "pageCacheLimitPercent": 50}
    seen = tree.view(view, slo=slo(resourceQOSStrategy={"lsClass": {"memoryQOS": qos}}))

    planned = plan_memory_qos(seen)

    protected = values(planned, CgroupFile.MEMORY_MIN)
    assert protected[folders(view)["proxy"]] == str(2 * GIB)
    assert protected[view.folder] == str(3 * GIB)
    cache = values(planned, CgroupFile.PAGE_CACHE_SIZE)
    assert cache in ({}, {view.folder: str(3 * GIB // 2)})


def test_a_sidecar_ends_with_its_pod() -> None:
    """An evicted pod's sidecars are ended on the machine, too."""
    made = with_init(
        pod("a", "BE", labels={"koordinator.sh/eviction-enabled": "true"}, priority=5000),
        container("proxy", sidecar=True),
    )
    tree, store = Tree(), MetricStore(60, 1)
    view = tree.add_pod(made)
    now_s = tree.view().now_s
    store.add(Metric.NODE_CPU, "", now_s, 7.9)
    store.add(Metric.POD_CPU, view.uid, now_s, 7.0)
    threshold = {
        "enable": True,
        "cpuEvictThresholdPercent": 70,
        "evictEnabledPriorityThreshold": 5999,
    }
    spec = slo(resourceUsedThresholdWithBE=threshold)
    inputs = StrategyInputs(tree.view(view, machine_=machine(8), slo=spec), store)

    (victim,) = choose_with_copilot(cpu_tasks(inputs, {"CPUEvict"}), (), ())[0]

    assert set(victim.folders) == set(folders(view).values())


def test_a_sandbox_is_where_its_pod_is() -> None:
    """A virtual machine runs in it: it has the CPUs, identity and cache share of the pod."""
    annotations = {
        "scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}',
        "node.koordinator.sh/resctrl": '{"llc":{"schemata":{"range":[0,30]}}}',
    }
    amounts: dict[str, str | int] = {"cpu": 2}
    made = pod("a", "LSR", requests=amounts, limits=amounts, annotations=annotations)
    tree = Tree()
    view = tree.add_pod(made)
    other = tree.add_pod(pod("b", "LSR"))
    sandbox, other_sandbox = (LAYOUT.container(each.folder, "x://s") for each in (view, other))
    for folder in (sandbox, other_sandbox):
        tree.add(folder)
    on = {"cpuQOS": {"enable": True}, "resctrlQOS": {"enable": True, "catRangeEndPercent": 100}}
    seen = tree.view(view, other, slo=slo(resourceQOSStrategy={"lsrClass": on}))

    assert values(plan_cpusets(seen), CgroupFile.CPUSET)[sandbox] == "0-1"
    assert values(plan_group_identity(seen), CgroupFile.BVT_WARP)[sandbox] == "2"
    caches = ResctrlFacts((0,), 0xFFF, "GenuineIntel")
    groups = {
        intent.group: intent.cgroups
        for intent in (*plan_class_resctrl(seen, caches), *plan_pod_resctrl(seen, caches))
        if isinstance(intent, SetResctrl)
    }
    assert sandbox in groups["koordlet-uid-a"]
    assert other_sandbox in groups["LSR"]
    assert sandbox not in groups["LSR"]


def test_a_pod_without_its_cpus_has_the_quotas_of_the_kubelet() -> None:
    """A sidecar without limit leaves the pod without one, although it has not started yet."""
    annotations = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"6-7"}'}
    half: dict[str, str | int] = {"cpu": "500m"}
    limited = pod("a", "LSR", requests=half, limits=half, annotations=annotations)
    tree = Tree()
    free = with_init(limited, container("proxy", sidecar=True))
    free = replace(free, status=replace(free.status, init_container_statuses=()))
    alone = replace(limited, metadata=replace(limited.metadata, name="b", uid="uid-b"))
    views = [tree.add_pod(each) for each in (free, alone)]

    planned = values(plan_cpusets(tree.view(*views)), CgroupFile.CFS_QUOTA)

    mains = {view.containers[0].folder: "50000" for view in views}
    assert planned == {**mains, views[1].folder: "50000"}
