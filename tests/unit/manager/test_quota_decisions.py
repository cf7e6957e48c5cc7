"""Admission of quotas by two replicas: pending changes count in both immediately."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.unit.manager.admission.requests import request
from tests.unit.manager.admission.test_validation import quota

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.core import ConfigMap
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import JsonObject
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Watch, WatchEvent
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import NotFoundError
from koordinator.manager.admission.gates import DEFAULT_GATES
from koordinator.manager.admission.lookup import Denial
from koordinator.manager.admission.quotas import mutate_quota, validate_quota
from koordinator.manager.lookups import LISTING_PAUSES, WatchLookup
from koordinator.manager.quota_view import ADMITTED_FOR_S, LARGEST, NAME, SHARE, QuotaRecord

NAMESPACE = "koordinator-system"
PREFIX = "quota.scheduling.koordinator.sh/"


class SlowWatch:
    """Watch that returns events only while it is open."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.is_open = True

    def poll(self) -> Sequence[WatchEvent]:
        return self._watch.poll() if self.is_open else ()

    def refresh(self) -> None:
        self._watch.refresh()

    def close(self) -> None:
        self._watch.close()


class Replica:
    """Manager that reviews quotas; it receives events while ``watch.is_open``."""

    def __init__(self, world: MemoryCluster, clock: VirtualClock) -> None:
        watches: list[SlowWatch] = []

        class Slow:
            """The cluster with a slow watch."""

            def __getattr__(self, name: str) -> Any:
                return getattr(world, name)

            def watch(self, kinds: Any) -> SlowWatch:
                watches.append(SlowWatch(world.watch(kinds)))
                return watches[0]

        cluster: Any = Slow()
        self.lookup = WatchLookup(cluster, lambda: 0, clock, QuotaRecord(cluster, clock, NAMESPACE))
        self.lookup.follow()
        self.watch = watches[0]

    def ask(
        self,
        obj: JsonObject,
        operation: str = "CREATE",
        old: JsonObject | None = None,
        **more: Any,
    ) -> str:
        """Return the reason of a denial; empty if the request is admitted."""
        self.lookup.follow()
        admission = request(obj, operation, old, **more)
        try:
            validate_quota(admission, self.lookup, DEFAULT_GATES)
        except Denial as denial:
            return str(denial)
        return ""


class Cell:
    """An API server with two replicas of the manager."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.world = MemoryCluster(self.clock)
        namespaces = ("default", NAMESPACE)
        self.world.load(
            decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for name in namespaces
        )
        self.replicas = [Replica(self.world, self.clock) for _ in range(2)]

    def store(self, obj: JsonObject) -> None:
        self.world.create(decode_object(obj))

    def stored(self, name: str) -> JsonObject:
        return to_manifest(self.world.get(ElasticQuota, name, "default"))

    def stop_watches(self) -> None:
        for replica in self.replicas:
            replica.watch.is_open = False


@pytest.fixture
def cell() -> Cell:
    return Cell()


def parent(name: str = "dept", cpu: int = 10) -> JsonObject:
    return sized(quota(name, is_parent=True), cpu)


def child(name: str, cpu: int, of: str = "dept") -> JsonObject:
    return sized(quota(name, of), cpu)


def sized(made: Any, cpu: int) -> JsonObject:
    made["spec"] = {"max": {"cpu": "100"}, "min": {"cpu": str(cpu)}}
    manifest: JsonObject = made
    return manifest


@pytest.mark.parametrize("second", [0, 1])
def test_a_child_may_come_right_after_its_parent(cell: Cell, second: int) -> None:
    """The parent counts before it is stored and before a watch delivers it."""
    cell.stop_watches()
    assert cell.replicas[0].ask(parent()) == ""

    assert cell.replicas[second].ask(child("team", 1)) == ""


@pytest.mark.parametrize("second", [0, 1])
def test_the_mutating_hook_knows_a_parent_that_is_stored(cell: Cell, second: int) -> None:
    """The delay of the watch does not matter."""
    tree = {f"{PREFIX}tree-id": "7"}
    cell.stop_watches()
    dept = parent()
    dept["metadata"]["labels"] |= tree
    cell.store(dept)

    filled = mutate_quota(request(child("team", 1)), cell.replicas[second].lookup, DEFAULT_GATES)

    assert filled["metadata"]["labels"].items() >= tree.items()


@pytest.mark.parametrize("second", [0, 1])
def test_children_that_come_together_get_no_more_than_their_parent(cell: Cell, second: int) -> None:
    """Each child alone would fit."""
    cell.store(parent())
    cell.replicas[1].lookup.follow()
    assert cell.replicas[0].ask(child("a", 6)) == ""

    refused = cell.replicas[second].ask(child("b", 6))

    assert "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: dept" in refused
    assert cell.replicas[second].ask(child("c", 4)) == ""


@pytest.mark.parametrize("second", [0, 1])
def test_a_change_counts_before_it_is_seen(cell: Cell, second: int) -> None:
    """A change that reduces the parent counts as well."""
    cell.store(parent())
    before = cell.stored("dept")
    assert cell.replicas[0].ask(parent(cpu=5), "UPDATE", before) == ""

    assert "brothers' MinQuota" in cell.replicas[second].ask(child("a", 6))


@pytest.mark.parametrize("second", [0, 1])
def test_parent_that_is_being_deleted_gets_no_children(cell: Cell, second: int) -> None:
    """The deletion of the parent is admitted, and still pending."""
    cell.store(parent())
    assert cell.replicas[0].ask(cell.stored("dept"), "DELETE", cell.stored("dept")) == ""

    assert "not find parentInfo" in cell.replicas[second].ask(child("a", 1))


def test_a_parent_may_go_right_after_its_child(cell: Cell) -> None:
    """The other replica admitted the deletion of the child, and the watches are late."""
    cell.store(parent())
    cell.store(child("a", 1))
    for replica in cell.replicas:
        replica.lookup.follow()
    cell.stop_watches()
    kid, dept = cell.stored("a"), cell.stored("dept")
    assert cell.replicas[0].ask(kid, "DELETE", kid) == ""
    cell.world.delete(ElasticQuota, "a", "default")

    assert cell.replicas[1].ask(dept, "DELETE", dept) == ""


def test_what_others_refuse_after_all_ceases_to_count(cell: Cell) -> None:
    """Another webhook denied the quota; an immediate retry of a request is admitted."""
    cell.store(parent())
    assert cell.replicas[0].ask(child("a", 6)) == ""
    assert cell.replicas[1].ask(child("a", 7)) == ""
    assert cell.replicas[0].ask(child("b", 6))

    cell.clock.advance_to(cell.clock.now_s() + ADMITTED_FOR_S + 1)

    assert cell.replicas[0].ask(child("b", 6)) == ""


def test_dry_run_does_not_count(cell: Cell) -> None:
    """A dry run is never stored."""
    cell.store(parent())
    assert cell.replicas[0].ask(child("a", 6), is_dry_run=True) == ""

    assert cell.replicas[0].ask(child("b", 6)) == ""


def test_reports_of_usage_are_not_recorded(cell: Cell) -> None:
    """The scheduler writes them often, and admission does not depend on them."""
    cell.store(parent())
    before = cell.stored("dept")
    after = before | {"status": {"used": {"cpu": "3"}}}

    assert cell.replicas[0].ask(after, "UPDATE", before) == ""

    with pytest.raises(NotFoundError):
        cell.world.get(ConfigMap, NAME, NAMESPACE)


def test_the_record_forgets_and_survives_strangers(cell: Cell) -> None:
    """The record has pending admissions only; foreign text in it stays and has no effect."""
    cell.store(parent("dept", 100))
    cell.replicas[0].ask(child("a", 1))
    cell.world.patch(ConfigMap, NAME, NAMESPACE, {"data": {"x": "[" * 5000, "y": "{}"}})
    for number in range(5):
        cell.clock.advance_to(cell.clock.now_s() + ADMITTED_FOR_S + 1)
        assert cell.replicas[number % 2].ask(child(f"n{number}", 1)) == ""

    kept = cell.world.get(ConfigMap, NAME, NAMESPACE).data
    assert len(kept) == 3
    cell.world.delete(ConfigMap, NAME, NAMESPACE)
    assert cell.replicas[0].ask(child("b", 1)) == ""


def wordy(name: str, size: int, namespace: str) -> JsonObject:
    made = child(name, 0)
    made["metadata"]["namespace"] = namespace
    amounts = {f"example.com/r{number:07}": "1" for number in range(size // 28)}
    made["spec"] = {"max": amounts, "min": {}}
    made["metadata"]["labels"].pop(f"{PREFIX}parent", None)
    return made


def test_no_quota_fills_the_record(cell: Cell) -> None:
    """A quota too large for the record is refused by name; an existing one may be deleted."""
    cell.store(parent())
    large = wordy("large", 2 * LARGEST, "default")

    assert f"must be at most {LARGEST} bytes" in cell.replicas[0].ask(large)

    cell.store(large)
    large = cell.stored("large")
    assert cell.replicas[0].ask(large, "DELETE", large) == ""


def test_no_namespace_keeps_others_from_changing_quotas(cell: Cell) -> None:
    """Many changes in one namespace are limited; after a while more are admitted."""
    cell.store(parent())
    size = LARGEST * 3 // 4
    answers = [
        cell.replicas[number % 2].ask(wordy(f"n{number}", size, "default"))
        for number in range(SHARE // size + 5)
    ]
    assert answers[0] == ""
    assert "too many quotas of namespace default were changed within 30 s" in answers[-1]
    assert sum(map(len, cell.world.get(ConfigMap, NAME, NAMESPACE).data.values())) <= SHARE

    assert cell.replicas[0].ask(wordy("other", size, NAMESPACE)) == ""

    cell.clock.advance_to(cell.clock.now_s() + ADMITTED_FOR_S + 1)
    assert cell.replicas[1].ask(wordy("more", size, "default")) == ""


def test_refusals_cost_few_listings(cell: Cell) -> None:
    """Repeated invalid requests do not make the API server list all quotas each time."""
    lists = 0
    real = cell.world.list

    def slow(*args: Any, **kwargs: Any) -> Any:
        nonlocal lists
        lists += 1
        cell.clock.advance_to(cell.clock.now_s() + 0.5)
        return real(*args, **kwargs)

    cell.world.list = slow  # type: ignore[method-assign]
    for _ in range(20):
        assert cell.replicas[0].ask(child("a", 1, of="nobody"))
    assert lists == 1

    cell.clock.advance_to(cell.clock.now_s() + 0.5 * LISTING_PAUSES)
    assert cell.replicas[0].ask(child("a", 1, of="nobody"))
    assert lists == 2


class Admissions(RuleBasedStateMachine):
    """Requests that overlap at two replicas whose watches lag; some are refused by others."""

    @initialize()
    def begin(self) -> None:
        self.cell = Cell()
        self.cell.store(parent())
        self.under_way: list[tuple[str, JsonObject]] = []  # admitted, not stored

    @rule(who=st.integers(0, 1), name=st.sampled_from("abc"), cpu=st.integers(0, 10))
    def create(self, who: int, name: str, cpu: int) -> None:
        if self._read(name) is None and not self._is_under_way(name):
            made = child(name, cpu)
            if not self.cell.replicas[who].ask(made):
                self.under_way.append(("CREATE", made))

    @rule(who=st.integers(0, 1), name=st.sampled_from("abc"), cpu=st.integers(0, 10))
    def change(self, who: int, name: str, cpu: int) -> None:
        self._update(who, name, cpu)

    @rule(who=st.integers(0, 1), cpu=st.integers(0, 10))
    def resize_the_parent(self, who: int, cpu: int) -> None:
        self._update(who, "dept", cpu)

    @rule(who=st.integers(0, 1), name=st.sampled_from(["a", "b", "c", "dept"]))
    def delete(self, who: int, name: str) -> None:
        old = self._read(name)
        if (
            old is not None
            and not self._is_under_way(name)
            and not self.cell.replicas[who].ask(old, "DELETE", old)
        ):
            self.under_way.append(("DELETE", old))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.under_way) - 1))
        operation, obj = self.under_way.pop(place)
        if operation == "CREATE":
            self.cell.store(obj)
        elif operation == "DELETE":
            self.cell.world.delete(ElasticQuota, obj["metadata"]["name"], "default")
        else:
            self.cell.world.update(decode_object(obj))

    @rule(who=st.integers(0, 1), is_open=st.booleans())
    def open_or_close_watch(self, who: int, is_open: bool) -> None:
        self.cell.replicas[who].watch.is_open = is_open
        self.cell.replicas[who].lookup.follow()

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        self.cell.replicas[who] = Replica(self.cell.world, self.cell.clock)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        if not self.under_way:  # an API server waits no longer than what is admitted counts
            for who in range(2):  # nor is a watch later
                self.open_or_close_watch(who, is_open=True)
            self.cell.clock.advance_to(self.cell.clock.now_s() + seconds)

    @invariant()
    def no_child_is_guaranteed_what_its_parent_has_not(self) -> None:
        if not hasattr(self, "cell"):
            return
        quotas = {q.metadata.name: q for q in self.cell.world.list(ElasticQuota).items}
        children = [quota for quota in quotas.values() if quota.parent == "dept"]
        if children:
            assert "dept" in quotas
            least = sum(child.spec.min["cpu"].nanos for child in children)
            assert least <= quotas["dept"].spec.min["cpu"].nanos

    def _update(self, who: int, name: str, cpu: int) -> None:
        old = self._read(name)
        if old is None or self._is_under_way(name):
            return
        new = {**old, "spec": {**old["spec"], "min": {"cpu": str(cpu)}}}
        if not self.cell.replicas[who].ask(new, "UPDATE", old):
            self.under_way.append(("UPDATE", new))

    def _is_under_way(self, name: str) -> bool:
        return any(obj["metadata"]["name"] == name for _, obj in self.under_way)

    def _read(self, name: str) -> JsonObject | None:
        try:
            return self.cell.stored(name)
        except NotFoundError:
            return None


test_quotas_stay_within_their_parents_in_any_order = Admissions.TestCase
test_quotas_stay_within_their_parents_in_any_order.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None
)
