"""Odd, deep and huge texts in every annotation and label that the source names.

The neighbours' outcome is what it would be without the object, in every component.
"""

import contextlib
import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests import nodes
from tests.examples import examples
from tests.hostile_texts import MEANT, TEXTS, keys
from tests.reservations import reservation
from tests.unit.dashboard.dashboards import NOW
from tests.unit.descheduler.plugins.test_low_node_load import AT_ONCE, load, measured
from tests.unit.descheduler.world import DeschedulerWorld, profile_of
from tests.unit.koordlet.app.test_isolation import EVERYTHING
from tests.unit.koordlet.app.world import World as Agent
from tests.unit.koordlet.app.world import ls_and_be
from tests.unit.manager.admission.requests import lookup
from tests.unit.manager.node_resources.nodes import amounts
from tests.unit.manager.node_resources.nodes import node as colocated_node
from tests.unit.manager.test_isolation import isolated, kept
from tests.unit.scheduler.broken_plugins import World
from tests.worlds import device, made, node, pod
from tests.yarn_clusters import YarnWorld, kube_node, node_manager_pod

from koordinator.api.codec import to_manifest
from koordinator.dashboard import queries
from koordinator.dashboard.access import ViewScope
from koordinator.dashboard.node_details import node_details
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import DEFAULT_GATES
from koordinator.manager.admission.hooks import HookOptions, enabled_hooks
from koordinator.manager.admission.lookup import AdmissionRequest, Denial

pytestmark = pytest.mark.integration

KEYS = keys()
KOORD = "koord-scheduler"
KINDS = ("pending", "running", "ended", "node", "device", "held", "asked", "group", "quota")
KIND = st.sampled_from(["annotations", "labels"])
TEXT = st.one_of(st.sampled_from(MEANT), st.sampled_from(TEXTS))
CHOSEN = st.dictionaries(st.sampled_from(KEYS), TEXT, min_size=1, max_size=4)
#: What is written on the objects of a world: (the object, annotations or labels) to texts by key.
MARKS = st.dictionaries(st.tuples(st.sampled_from(KINDS), KIND), CHOSEN, min_size=1, max_size=4)
ALL = ViewScope()
BALANCING = profile_of(
    "balance",
    "LowNodeLoad",
    {"anomalyCondition": AT_ONCE, "lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 60}},
)


def marked(obj: Any, kind: str, texts: dict[str, str]) -> Any:
    """Return an object with more annotations or labels."""
    more = {**getattr(obj.metadata, kind), **texts}
    return structs.replace(obj, metadata=structs.replace(obj.metadata, **{kind: more}))


def hostile_objects(marks: dict[tuple[str, str], dict[str, str]]) -> list[Any]:
    """Return nodes, three good pods, and objects of a tenant with these marks."""
    tenant = {"namespace": "default"}
    amounts = {"cpu": "4", "memory": "4Gi"}
    group = made("PodGroup", "g", "scheduling.sigs.k8s.io/v1alpha1", metadata=tenant)
    quota = made(
        *("ElasticQuota", "q", "scheduling.sigs.k8s.io/v1alpha1"),
        metadata=tenant,
        spec={"min": amounts, "max": amounts},
    )
    objects: dict[str, Any] = {
        "node": node("n0", 4, "64Gi"),
        "device": device("n0", gpus=1),
        "pending": pod("evil", 1, schedulerName=KOORD),
        "running": pod("evil-running", 1, schedulerName=KOORD, on="n0"),
        "ended": pod("evil-ended", 1, schedulerName=KOORD, on="n0", phase="Succeeded"),
        "held": reservation("held", 1, on="n0", template={"schedulerName": KOORD}),
        "asked": reservation("asked", 1, template={"schedulerName": KOORD}),
        "group": group,
        "quota": quota,
    }
    for (name, kind), texts in marks.items():
        objects[name] = marked(objects[name], kind, texts)
    good = (pod(f"good{i}", 1, schedulerName=KOORD) for i in range(3))
    return [node("n1", 8, "64Gi"), *objects.values(), *good]


def scheduled(marks: dict[tuple[str, str], dict[str, str]]) -> World:
    """Schedule beside hostile objects, which must break nothing; each good pod gets a node."""
    world = World(*hostile_objects(marks))
    placed = world.run()
    assert world.faults == []
    assert {f"good{i}" for i in range(3)} <= placed.keys()
    return world


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(MARKS)
def test_the_scheduler_survives_hostile_objects(
    marks: dict[tuple[str, str], dict[str, str]],
) -> None:
    """All other pods get nodes, and soon; each pod is explained, and shown in the dashboard."""
    began_s = time.process_time()

    handle = scheduled(marks).one.scheduler.handle

    for key in [*handle.state.unbound, *handle.state.pods.by_key]:
        json.dumps(queries.explanation(handle, key, ALL))
    overview = OverviewBuilder(handle).build(NOW)
    pages = [
        *(node_details(handle, name, ALL) for name in handle.state.nodes.rows),
        queries.find(handle, "evil", ALL),
        queries.queue(handle, overview, ALL),
        queries.quota_report(handle).visible_to(ALL),
        queries.gang_report(handle).visible_to(ALL),
    ]
    json.dumps(pages)
    assert time.process_time() - began_s < 5


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_all_keys_at_once_break_no_scheduler(number: int) -> None:
    """A pod and a node on which all say the same."""
    texts = dict.fromkeys(KEYS, TEXTS[number])
    for where in ("pending", "running", "node"):
        scheduled({(where, "annotations"): texts})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_the_manager_survives_hostile_objects(number: int) -> None:
    """Nodes beside an evil one have what they would have without it."""
    world, faults = isolated()
    evil = colocated_node(amounts(10, "10G"), name="evil")
    world.add(marked(evil, "annotations", dict.fromkeys(KEYS, TEXTS[number])))

    outcome = kept(world, "a")

    assert faults == []
    plain, _ = isolated()
    assert outcome == kept(plain, "a")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_reviews_are_answered(number: int) -> None:
    """With a change, with nothing, or with a refusal and its reason."""
    manifest = to_manifest(marked(pod("evil"), "annotations", dict.fromkeys(KEYS, TEXTS[number])))
    for hook in enabled_hooks(HookOptions(gates=DEFAULT_GATES)):
        if hook.resource != "pods":
            continue
        admission = AdmissionRequest(
            operation="CREATE", namespace="default", name="evil", obj=manifest
        )
        with contextlib.suppress(Denial):
            (hook.mutate or hook.validate)(admission, lookup())  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_the_agent_survives_hostile_objects(number: int) -> None:
    """Cgroups of other pods have what they would have without the evil one."""
    text = TEXTS[number]
    at_once = 200_000 // len(text)  # more an API server does not take
    batches = [KEYS[i : i + at_once] for i in range(0, len(KEYS), at_once)] if at_once else []
    seen = []
    for is_evil in (False, True):
        world, failed = Agent(gates=EVERYTHING), Counter[str]()
        world.agent = world.start(on_failure=lambda part, _, to=failed: to.update([part]))
        world.slo(cpu_suppress_threshold_percent=70)
        ls, be = ls_and_be(world)
        for index, batch in enumerate(batches):
            texts = dict.fromkeys(batch, text) if is_evil else {}
            with contextlib.suppress(InputError):  # what the builder of the test can't lay out
                world.add(marked(nodes.pod(f"evil{index}", "BE"), "annotations", texts))
        world.seconds(12, {ls.folder: 1.0, be.folder: 1.0})
        assert failed == Counter()
        files = (CgroupFile.CPU_SHARES, CgroupFile.CFS_QUOTA, CgroupFile.CPUSET)
        seen.append([world.tree.get(file, one.folder) for one in (ls, be) for file in files])

    assert seen[0] == seen[1]


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(MARKS)
def test_the_descheduler_survives_hostile_objects(
    marks: dict[tuple[str, str], dict[str, str]],
) -> None:
    """Pods of a node under load are moved from it, whatever is written on others."""
    world = DeschedulerWorld(
        *hostile_objects(marks),
        node("n2", 10),
        *(measured(name, "n2") for name in ("a", "b")),
        load("n2", "5", a="1500m", b="1500m"),
        *(load(name) for name in ("n0", "n1")),
        profile=BALANCING,
    )

    assert "a" in world.evicted()


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(KIND, CHOSEN, CHOSEN)
def test_the_yarn_operator_survives_hostile_objects(
    kind: str, on_node: dict[str, str], on_pod: dict[str, str]
) -> None:
    """The NodeManager of another node has its limit."""
    world = YarnWorld(nodes=[kube_node(), marked(kube_node("evil"), kind, on_node)])
    evil = node_manager_pod("evil", "evil:8041", "nm-evil")
    world.cluster.load([node_manager_pod(), marked(evil, kind, on_pod)])
    world.uses(0, 0)

    world.run()

    assert world.limit().vcores > 1
