"""Groups of pods that share cores, from NodeSLO and labels."""

from typing import Any

import pytest
from tests.nodes import LAYOUT, Tree, pod, slo

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.koordlet.hooks.cpu_qos import plan_core_scheduling
from koordinator.koordlet.intents import SetCgroup, SetCoreCookie, SetFile

GROUP = "koordinator.sh/core-sched-group-id"
POLICY = "koordinator.sh/core-sched-policy"
NEEDS: dict[str, Any] = {"requests": {"cpu": 1}}
FULL = {**NEEDS, "limits": {"cpu": 1}}


def strategy(policy: str = "coreSched", *enabled: str, **be: Any) -> Any:
    """Return a NodeSLO in which some classes schedule cores; LS and LSR expel by default."""
    classes: dict[str, Any] = {name: {"cpuQOS": {"enable": True}} for name in enabled}
    if "beClass" in classes:
        classes["beClass"]["cpuQOS"] |= be
    return slo(resourceQOSStrategy={"policies": {"cpuPolicy": policy}, **classes})


ON = strategy("coreSched", "lsrClass", "lsClass", "beClass")


@pytest.mark.parametrize(
    ("qos", "resources", "labels", "group"),
    [
        ("LS", NEEDS, {}, "-expeller"),
        ("LS", NEEDS, {GROUP: "team"}, "default/team-expeller"),
        ("LSR", FULL, {GROUP: "team"}, "default/team-expeller"),
        ("LSE", FULL, {GROUP: "team"}, "default/team-expeller"),
        ("BE", {}, {}, ""),
        ("BE", {}, {GROUP: "team"}, "default/team"),
        ("BE", {}, {GROUP: "team", POLICY: "exclusive"}, "uid-a"),
        ("LS", NEEDS, {POLICY: "exclusive"}, "uid-a-expeller"),
        ("BE", {}, {GROUP: "team", POLICY: "none"}, None),
        ("BE", {}, {GROUP: "team", POLICY: "else"}, "default/team"),
        ("", {}, {GROUP: "team"}, "default/team"),
        ("", NEEDS, {GROUP: "team"}, "default/team-expeller"),
    ],
)
def test_the_group_of_a_pod(
    qos: str, resources: dict[str, Any], labels: dict[str, str], group: str | None
) -> None:
    """By its labels; classes that expel have groups of their own."""
    tree = Tree()
    view = tree.add_pod(pod("a", qos, labels=labels, **resources))

    (cookie,) = [i for i in plan(tree, ON, view) if isinstance(i, SetCoreCookie)]

    assert (cookie.folder, cookie.group) == (view.containers[0].folder, group)


@pytest.mark.parametrize("spec", [slo(), strategy("groupIdentity", "lsClass"), strategy()])
def test_where_it_is_off_cookies_are_taken_away(spec: Any) -> None:
    """By another policy, or by no class having it."""
    tree = Tree()
    view = tree.add_pod(pod("a", "LS", labels={GROUP: "team"}, **NEEDS))
    planned = plan(tree, spec, view)

    assert [i.group for i in planned if isinstance(i, SetCoreCookie)] == [None]
    assert not any(isinstance(i, SetFile) for i in planned)


def test_the_sandbox_of_a_pod_belongs_to_its_group_and_system_pods_to_none() -> None:
    """The agent itself is of class SYSTEM: it has to be without a cookie to take one away."""
    tree = Tree()
    view = tree.add_pod(pod("a", "BE"))
    tree.add(f"{view.folder}/sandbox")
    system = tree.add_pod(pod("agent", "SYSTEM", **NEEDS))
    ended = tree.add_pod(pod("done", "BE", phase="Succeeded"))

    cookies = [i for i in plan(tree, ON, view, system, ended) if isinstance(i, SetCoreCookie)]

    assert {i.folder: i.owner for i in cookies} == {
        view.containers[0].folder: "default/a/c0",
        f"{view.folder}/sandbox": "default/a",
    }


def test_the_switches_of_the_kernel_come_first() -> None:
    """Group identity goes off before core scheduling goes on."""
    planned = plan(Tree(), ON)

    assert [(i.path, i.value) for i in planned[:2] if isinstance(i, SetFile)] == [
        ("kernel/sched_group_identity_enabled", "0"),
        ("kernel/sched_core", "1"),
    ]


@pytest.mark.parametrize(
    ("spec", "idle"),
    [
        (strategy("coreSched", "beClass", schedIdle=1), "1"),
        (strategy("coreSched", "beClass"), "0"),
        (strategy("groupIdentity", "beClass", schedIdle=1), "0"),
        (slo(), "0"),
    ],
)
def test_pods_idle_only_with_core_scheduling(spec: Any, idle: str) -> None:
    """According to the NodeSLO of their class; the tiers belong to the kubelet."""
    tree = Tree()
    job, first = (tree.add_pod(pod(qos.lower(), qos)) for qos in ("BE", "LS"))
    planned = plan(tree, spec, job, first)

    assert {
        i.folder: i.value
        for i in planned
        if isinstance(i, SetCgroup) and i.file is CgroupFile.CPU_IDLE
    } == {
        **dict.fromkeys((LAYOUT.kubepods, LAYOUT.burstable, LAYOUT.besteffort), "0"),
        job.folder: idle,
        first.folder: "0",
    }


def plan(tree: Tree, spec: Any, *pods: Any) -> list[Any]:
    """Return the intents of a node."""
    return plan_core_scheduling(tree.view(*pods, slo=spec))
