"""Consistency of the events of a watch with the objects that exist."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster.kubernetes.objects import event, pod, pod_list

from koordinator.api.meta import KubeObject
from koordinator.api.nesting import cut_nesting
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.mailbox import Item, Lines
from koordinator.cluster.kubernetes.pages import ListPage
from koordinator.cluster.kubernetes.watch import View
from koordinator.cluster.port import EventType

World = dict[str, tuple[int, int]]  # name: version, incarnation


class Story:
    """A server's history, and the events that reach a client: some are lost, then it lists."""

    def __init__(self) -> None:
        self.world: World = {}
        self.version = 0
        self.items: list[Item] = []

    def write(self, name: str, *, lost: bool) -> None:
        """Create, or change what exists."""
        self.version += 1
        known = self.world.get(name)
        self.world[name] = (self.version, known[1] if known else self.version)
        self._tell("MODIFIED" if known else "ADDED", name, lost=lost)

    def delete(self, name: str, *, lost: bool) -> None:
        if name in self.world:
            self.version += 1
            self.world[name] = (self.version, self.world[name][1])
            self._tell("DELETED", name, lost=lost)
            del self.world[name]

    def list(self, page_size: int, given_up_after: int) -> None:
        """Read pages; a list that is given up half-way is begun again."""
        self._pages(page_size, given_up_after)
        self._pages(page_size, len(self.world) + 1)

    def _pages(self, size: int, count: int) -> None:
        names = sorted(self.world)
        parts = [names[i : i + size] for i in range(0, len(names), size)] or [[]]
        for i, part in enumerate(parts[:count]):
            body = json.dumps(pod_list(*map(self._pod, part))).encode()
            self.items.append(ListPage(body, i == 0, "more" if i + 1 < len(parts) else ""))

    def _tell(self, kind: str, name: str, *, lost: bool) -> None:
        if not lost:
            self.items.append(Lines([event(kind, self._pod(name))]))

    def _pod(self, name: str) -> dict[str, object]:
        version, born = self.world[name]
        return pod(name, str(version), uid=f"{name}-{born}")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "delete", "list"]),
        st.sampled_from("abcd"),
        st.booleans(),
        st.integers(1, 3),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_events_add_up_to_the_world(steps: list[tuple[str, str, bool, int]]) -> None:
    """Every event fits what was delivered before it, whatever was lost until the next list."""
    story = Story()
    for action, name, lost, number in steps:
        if action == "list":
            story.list(number, given_up_after=number - 1)
        elif action == "write":
            story.write(name, lost=lost)
        else:
            story.delete(name, lost=lost)
    story.list(2, given_up_after=0)

    view, state = View(Pod), dict[str, KubeObject]()
    for item in story.items:
        for change in view.apply(item):
            key = change.object.key
            assert (key in state) is (change.type is not EventType.ADDED)
            assert change.previous is state.get(key)
            if change.type is EventType.DELETED:
                del state[key]
            else:
                assert change.object != change.previous
                state[key] = change.object

    versions = {o.metadata.name: int(o.metadata.resource_version) for o in state.values()}
    assert versions == {name: version for name, (version, _) in story.world.items()}
    assert view.objects == state


def test_an_object_nested_too_deep_does_not_keep_others_from_being_seen() -> None:
    """Of it counts what our types know; neither the list nor the watch ends."""
    deep = "[" * 50_000 + "]" * 50_000
    evil = json.dumps(pod("evil", "1")).replace('"spec"', f'"x": {deep}, "spec"')
    good = json.dumps(pod("good", "2"))
    text = f'{{"metadata": {{"resourceVersion": "2"}}, "items": [{evil}, {good}]}}'
    listed, streamed = View(Pod), View(Pod)

    result = [
        e.object.metadata.name for e in listed.apply(ListPage(cut_nesting(text.encode()), True))
    ]
    lines = [f'{{"type": "ADDED", "object": {one}}}'.encode() for one in (evil, good)]
    seen = [e.object.metadata.name for e in streamed.apply(Lines(lines))]

    assert result == seen == ["evil", "good"]


def test_an_object_of_a_known_version_is_not_decoded_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A repeated list costs what has changed: a part that can't be decoded is not read."""
    view = View(Pod)
    first = {"items": [pod("a", "1"), pod("b", "2")]}
    list(view.apply(ListPage(json.dumps(first).encode(), is_first=True)))
    known = view.objects["default/a"]

    again = {"items": [pod("a", "1", nodeName=1), pod("b", "3"), pod("c", "4")]}
    events = list(view.apply(ListPage(json.dumps(again).encode(), is_first=True)))

    assert [(it.type, it.object.key) for it in events] == [
        (EventType.MODIFIED, "default/b"),
        (EventType.ADDED, "default/c"),
    ]
    assert view.objects["default/a"] is known
    assert caplog.messages == []
