"""Trees of groups: PodGroups below CompositePodGroups of scheduling.k8s.io.

The groups of a tree start together: enough children of each CompositePodGroup, each with enough
members.

Source: kubernetes pkg/scheduler/framework/plugins/gangscheduling ``isCPGTreeReady``,
``isPGReady``; framework/preemption/types.go ``getHighestAllAncestor``; k8s.io/api
scheduling/v1alpha3/types.go.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Final

from koordinator.api.pod_groups import CompositePodGroup, SchedulingPodGroup
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

MOST_LEVELS: Final = 4  # of a tree, its PodGroups included
_SEGMENT: Final = "compositePodGroup"
#: Separator in gang ids between the namespace and the name of a PodGroup of scheduling.k8s.io;
#: not a valid name of a Workload.
POD_GROUP_SEGMENT: Final = "podGroup"
_Parented = CompositePodGroup | SchedulingPodGroup

_NAMED: Final = 6


@dataclass(frozen=True)
class GroupTree:
    """A group and the groups below it; a PodGroup has none."""

    id: str  # gang id of a PodGroup; namespace/compositePodGroup/name
    key: str  # namespace/name of the object
    least: int  # number of children that must start together; of a PodGroup: of members
    is_leaf: bool
    children: tuple["GroupTree", ...] = ()  # oldest first
    topology_key: str = ""  # node label whose value all members must share; empty: none
    goes_as_whole: bool = False  # preempting one member preempts all
    priority: int = 0
    preemption_policy: str = ""

    @cached_property
    def leaves(self) -> "tuple[GroupTree, ...]":
        """The PodGroups of the tree, in the order in which they are tried."""
        if self.is_leaf:
            return (self,)
        return tuple(leaf for child in self.children for leaf in child.leaves)

    @cached_property
    def leaf_ids(self) -> tuple[str, ...]:
        """The gang ids of the PodGroups, sorted."""
        return tuple(sorted(leaf.id for leaf in self.leaves))

    @cached_property
    def group_id(self) -> str:
        """The id of the gang group of its PodGroups."""
        return ",".join(self.leaf_ids)

    @cached_property
    def required(self) -> frozenset[str]:
        """The gang ids of PodGroups without which the tree cannot start."""
        if self.is_leaf:
            return frozenset((self.id,))
        if self.least < len(self.children):
            return frozenset()
        return frozenset().union(*(child.required for child in self.children))

    @cached_property
    def units(self) -> Mapping[str, tuple[str, ...]]:
        """The gang ids, by gang id, of the PodGroups that are preempted together."""
        if self.goes_as_whole or self.is_leaf:
            return dict.fromkeys(self.leaf_ids, self.leaf_ids)
        return {own_id: unit for child in self.children for own_id, unit in child.units.items()}

    @cached_property
    def whole(self) -> frozenset[str]:
        """The gang ids of PodGroups whose members are only preempted all together."""
        if self.goes_as_whole:
            return frozenset(self.leaf_ids)
        return frozenset().union(*(child.whole for child in self.children))

    def is_met(self, has_enough: Callable[["GroupTree"], bool]) -> bool:
        """Return whether enough groups can start; ``has_enough`` is called with PodGroups."""
        if self.is_leaf:
            return has_enough(self)
        return sum(child.is_met(has_enough) for child in self.children) >= self.least

    def unmet(self, has_enough: Callable[["GroupTree"], bool]) -> "Iterator[GroupTree]":
        """Yield the groups that cannot start and whose parents cannot either, top down."""
        if self.is_met(has_enough):
            return
        yield self
        for child in self.children:
            yield from child.unmet(has_enough)

    def cheapest(
        self, missing: Mapping[str, int], is_possible: Callable[["GroupTree"], bool]
    ) -> list[str]:
        """Return the PodGroups whose start needs the fewest more members; empty if none suffice.

        ``missing`` is the number of members that each still needs, by gang id.
        """
        chosen = self._cheapest(missing, is_possible)
        return [] if chosen is None else chosen[1]

    def _cheapest(
        self, missing: Mapping[str, int], is_possible: Callable[["GroupTree"], bool]
    ) -> tuple[int, list[str]] | None:
        if self.is_leaf:
            return (missing[self.id], [self.id]) if is_possible(self) else None
        tried = (child._cheapest(missing, is_possible) for child in self.children)  # noqa: SLF001
        cheapest = sorted((one for one in tried if one is not None), key=lambda one: one[0])
        if len(cheapest) < self.least:
            return None
        best = cheapest[: self.least]
        return sum(cost for cost, _ in best), [own_id for _, ids in best for own_id in ids]


class GroupForest:
    """Trees by the PodGroups in them, kept up to date with the objects.

    A change costs the same however large its tree is: the PodGroups that it concerns are listed
    once for all changes, by ``take_changed``.
    """

    def __init__(self) -> None:
        self._composites: dict[str, CompositePodGroup] = {}
        self._groups: dict[str, SchedulingPodGroup] = {}  # with a parent
        #: key of a CompositePodGroup -> whether a child is a PodGroup, and its key
        self._children: defaultdict[str, set[tuple[bool, str]]] = defaultdict(set)
        self._trees: dict[str, GroupTree | str] = {}  # by key of the topmost group
        self._changed_trees: dict[str, None] = {}  # groups that were topmost when they changed
        self._changed_groups: dict[str, None] = {}  # PodGroups that got or lost a parent
        #: Whether ``take_changed`` has something to return; no property, since each pod asks.
        self.is_changed = False

    def take_changed(self) -> list[str]:
        """Return the PodGroups whose tree may be another one since the last call."""
        changed, seen = self._changed_groups, set[str]()
        for key in self._changed_trees:
            top = self._top(key)
            if top not in seen:
                seen.add(top)
                changed |= dict.fromkeys(self._below(top))
        self._changed_trees, self._changed_groups = {}, {}
        self.is_changed = False
        return list(changed)

    def composite(self, key: str) -> CompositePodGroup | None:
        """Return a CompositePodGroup; None if it is unknown."""
        return self._composites.get(key)

    def put_composite(self, composite: CompositePodGroup) -> None:
        """Add or update a CompositePodGroup."""
        known = self._composites.get(composite.key)
        if known is not None and _is_same(known, composite):
            self._composites[composite.key] = composite
            return
        self._note_change(composite.key)
        self._unlink(known)
        self._composites[composite.key] = composite
        self._link(composite)
        self._note_change(composite.key)

    def drop_composite(self, composite: CompositePodGroup) -> None:
        """Remove a CompositePodGroup; the groups below it wait for another one of that name."""
        self._note_change(composite.key)
        self._unlink(self._composites.pop(composite.key, None))
        self._note_change(composite.key)

    def put_group(self, group: SchedulingPodGroup) -> bool:
        """Add or update a PodGroup; return whether that changes a tree."""
        known, parent = self._groups.get(group.key), parent_key(group)
        if known is not None and _is_same(known, group):
            self._groups[group.key] = group
            return False
        self.drop_group(group)
        if parent:
            self._groups[group.key] = group
            self._link(group)
            self._note_change(parent)
        return bool(known or parent)

    def drop_group(self, group: SchedulingPodGroup) -> None:
        """Remove a PodGroup."""
        known = self._groups.pop(group.key, None)
        if known is not None:
            self._changed_groups[group.key] = None
            self.is_changed = True
            self._note_change(parent_key(known))
            self._unlink(known)

    def tree_of(self, key: str) -> GroupTree | str | None:
        """Return the tree of a PodGroup, or why it has none; None for one without a parent."""
        group = self._groups.get(key)
        if group is None:
            return None
        top = self._top(parent_key(group))
        if top not in self._trees:
            self._trees[top] = self._tree(top)
        return self._trees[top]

    def validate(self) -> None:
        """Recompute the children and the trees, and raise BugError where they differ."""
        other = GroupForest()
        other._composites, other._groups = self._composites, self._groups
        for composite in self._composites.values():
            other._link(composite)
        for group in self._groups.values():
            other._link(group)
        if other._children != self._children:
            raise BugError("the children of CompositePodGroups are not those of the objects.")
        for top, tree in self._trees.items():
            if tree != other._tree(top):
                raise BugError(f"the tree of CompositePodGroup {top} is not that of the objects.")

    def _link(self, one: _Parented) -> None:
        parent = parent_key(one)
        if parent:
            self._children[parent].add((isinstance(one, SchedulingPodGroup), one.key))

    def _unlink(self, one: _Parented | None) -> None:
        parent = parent_key(one) if one is not None else ""
        if one is not None and parent:
            self._children[parent].discard((isinstance(one, SchedulingPodGroup), one.key))
            if not self._children[parent]:
                del self._children[parent]

    def _top(self, key: str) -> str:
        """Return the key of the topmost group above one, whether or not it exists.

        If the parents form a cycle, that is the least key in it.
        """
        seen = {key: None}
        while (one := self._composites.get(key)) is not None and parent_key(one):
            key = parent_key(one)
            if key in seen:
                names = list(seen)
                return min(names[names.index(key) :])
            seen[key] = None
        return key

    def _note_change(self, key: str) -> None:
        """Note that the tree of a group changes, and forget how it was."""
        top = self._top(key)
        self._trees.pop(top, None)
        self._changed_trees[top] = None
        self.is_changed = True

    def _below(self, top: str) -> list[str]:
        """Return the PodGroups of a tree."""
        children, todo, seen = list[str](), [top], {top}
        while todo:
            for is_leaf, child in sorted(self._children.get(todo.pop(), ())):
                if is_leaf:
                    children.append(child)
                elif child not in seen:
                    seen.add(child)
                    todo.append(child)
        return children

    def _tree(self, top: str) -> GroupTree | str:
        try:
            return self._build(top, 1)
        except _InvalidTree as error:
            return str(error)

    def _build(self, key: str, level: int) -> GroupTree:
        composite = self._composites.get(key)
        if composite is None:
            raise _InvalidTree(f"CompositePodGroup {key} of scheduling.k8s.io does not exist")
        if level >= MOST_LEVELS and self._children.get(key):
            raise _InvalidTree(
                f"CompositePodGroup {key} must be in a tree of at most {MOST_LEVELS} levels"
            )
        children = sorted(self._children.get(key, ()), key=self._age)
        spec = composite.spec
        return GroupTree(
            id=id_of_composite(composite),
            key=key,
            least=max(spec.min_group_count, 1),
            is_leaf=False,
            children=tuple(
                _leaf(self._groups[child]) if is_leaf else self._build(child, level + 1)
                for is_leaf, child in children
            ),
            topology_key=spec.topology_key,
            goes_as_whole=spec.is_disrupted_as_whole,
            priority=spec.priority or 0,
            preemption_policy=spec.preemption_policy or "",
        )

    def _age(self, child: tuple[bool, str]) -> tuple[float, str, bool]:
        is_leaf, key = child
        meta = (self._groups if is_leaf else self._composites)[key].metadata
        created = meta.creation_timestamp
        return (0.0 if created is None else created.timestamp(), key, is_leaf)


class _InvalidTree(Exception):  # noqa: N818 -- a state of the cluster, not a fault
    """A tree that cannot start with any pods."""


def _is_same(known: _Parented, one: _Parented) -> bool:
    """Return whether an update leaves the place of a group in its tree as it was."""
    created = known.metadata.creation_timestamp == one.metadata.creation_timestamp
    return created and known.spec == one.spec


def parent_key(one: _Parented) -> str:
    """Return ``namespace/name`` of the CompositePodGroup above a group; empty without one."""
    parent = one.spec.parent_composite_pod_group_name
    return f"{one.metadata.namespace}/{parent}" if parent else ""


def id_of_pod_group(pod_group: SchedulingPodGroup) -> str:
    """Return the gang id of a PodGroup of scheduling.k8s.io."""
    meta = pod_group.metadata
    return f"{meta.namespace}/{POD_GROUP_SEGMENT}/{meta.name}"


def id_of_composite(composite: CompositePodGroup) -> str:
    """Return the id of a CompositePodGroup among the ids of gangs."""
    meta = composite.metadata
    return f"{meta.namespace}/{_SEGMENT}/{meta.name}"


def _leaf(group: SchedulingPodGroup) -> GroupTree:
    gang = group.spec.scheduling_policy.gang
    return GroupTree(
        id=id_of_pod_group(group),
        key=group.key,
        least=max(gang.min_count, 1) if gang is not None else 1,
        is_leaf=True,
        topology_key=group.spec.topology_key,
        goes_as_whole=group.spec.is_disrupted_as_whole,
        priority=group.spec.priority or 0,
    )


def quorum_problem(tree: GroupTree, present: Mapping[str, int]) -> str:
    """Return which groups lack members; empty if the tree can start.

    ``present`` has the number of members of each PodGroup, by gang id.
    """

    def has_enough(leaf: GroupTree) -> bool:
        return present.get(leaf.id, 0) >= leaf.least

    return "; ".join(
        _shortfall_text(one, has_enough, present) for one in islice(tree.unmet(has_enough), _NAMED)
    )


def _shortfall_text(
    one: GroupTree, has_enough: Callable[[GroupTree], bool], present: Mapping[str, int]
) -> str:
    if one.is_leaf:
        present_count, requirement = (
            present.get(one.id, 0),
            f"gang {one.id} needs {one.least} members",
        )
    else:
        present_count = sum(child.is_met(has_enough) for child in one.children)
        requirement = f"CompositePodGroup {one.key} needs {one.least} groups with enough members"
    return f"{requirement}; there were {present_count} when this was written"
