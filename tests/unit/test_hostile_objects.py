"""Odd, deep and huge texts in every annotation and label that the project reads: nobody dies.

The neighbours' outcome is what it would be without the object, at scheduler, manager and agent.
"""

import contextlib
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests import nodes
from tests.hostile_texts import TEXTS, keys
from tests.unit.domain.colocation.nodes import amounts
from tests.unit.domain.colocation.nodes import node as colocated_node
from tests.unit.koordlet.app.test_isolation import EVERYTHING
from tests.unit.koordlet.app.world import World as Agent
from tests.unit.koordlet.app.world import ls_and_be
from tests.unit.manager.admission.requests import lookup
from tests.unit.manager.test_isolation import isolated, kept
from tests.unit.scheduler.broken_plugins import World
from tests.worlds import node, pod

from koordinator.api.codec import to_manifest
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import DEFAULT_GATES
from koordinator.manager.admission.hooks import HookOptions, enabled_hooks
from koordinator.manager.admission.request import AdmissionRequest, Denial

KEYS = keys()
KOORD = "koord-scheduler"
WHERE = st.sampled_from(["pending", "running", "node"])
KIND = st.sampled_from(["annotations", "labels"])
CHOSEN = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(TEXTS), min_size=1, max_size=3)


def marked(obj: Any, kind: str, texts: dict[str, str]) -> Any:
    """Return an object with more annotations or labels."""
    more = {**getattr(obj.metadata, kind), **texts}
    return structs.replace(obj, metadata=structs.replace(obj.metadata, **{kind: more}))


def scheduled(where: str, kind: str, texts: dict[str, str]) -> dict[str, str]:
    """Return where the good pods go beside an evil object, which must break nothing."""
    evil = pod("evil", 1, schedulerName=KOORD, on="n0" if where == "running" else "")
    first = node("n0", 4, "64Gi")
    objects = [node("n1", 8, "64Gi"), *(pod(f"good{i}", 1, schedulerName=KOORD) for i in range(3))]
    objects += [marked(first, kind, texts)] if where == "node" else [first]
    objects += [] if where == "node" else [marked(evil, kind, texts)]
    world = World(*objects)
    placed = world.run()
    assert world.faults == []
    return {name: on for name, on in placed.items() if name.startswith("good")}


@pytest.mark.slow
@settings(max_examples=60)
@given(WHERE, KIND, CHOSEN)
def test_the_scheduler_goes_on(where: str, kind: str, texts: dict[str, str]) -> None:
    """All other pods get nodes, and soon."""
    began_s = time.process_time()

    assert len(scheduled(where, kind, texts)) == 3

    assert time.process_time() - began_s < 5


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_all_keys_at_once_break_no_scheduler(number: int) -> None:
    """A pod and a node on which all say the same."""
    texts = dict.fromkeys(KEYS, TEXTS[number])
    for where in ("pending", "running", "node"):
        assert len(scheduled(where, "annotations", texts)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_the_manager_goes_on(number: int) -> None:
    """Nodes beside an evil one have what they would have without it."""
    world, faults = isolated()
    evil = colocated_node(amounts(10, "10G"), name="evil")
    world.add(marked(evil, "annotations", dict.fromkeys(KEYS, TEXTS[number])))

    found = kept(world, "a")

    assert faults == []
    plain, _ = isolated()
    assert found == kept(plain, "a")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_reviews_are_answered(number: int) -> None:
    """With a change, with nothing, or with a refusal that says why."""
    manifest = to_manifest(marked(pod("evil"), "annotations", dict.fromkeys(KEYS, TEXTS[number])))
    for hook in enabled_hooks(HookOptions(gates=DEFAULT_GATES)):
        if hook.resource != "pods":
            continue
        asked = AdmissionRequest(operation="CREATE", namespace="default", name="evil", obj=manifest)
        with contextlib.suppress(Denial):
            (hook.mutate or hook.validate)(asked, lookup())  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_the_agent_goes_on(number: int) -> None:
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
