"""Dataclasses with methods generated at first use behave as the standard library's."""

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import koordinator
from koordinator.foundation.lazy_dataclass import dataclass

OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"slots": True, "eq": False},
    {"slots": True, "repr": False},
    {"slots": True, "unsafe_hash": True},
    {"frozen": True, "slots": True, "order": True},
    {"slots": True, "weakref_slot": True, "eq": False},
)


def declare(decorator: Callable[..., Any], options: dict[str, bool]) -> type[Any]:
    """Declare one class with every kind of field."""

    class Thing:
        name: str
        hidden: int = field(default=1, repr=False, compare=False)
        items: list[str] = field(default_factory=list, hash=False)
        derived: str = field(init=False, default="")

        def __post_init__(self) -> None:
            object.__setattr__(self, "derived", self.name.upper())

    made: type[Any] = decorator(**options)(Thing)
    return made


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_instances_behave_as_those_of_the_standard_library(options: dict[str, bool]) -> None:
    """Construction, text, comparison, hash, order, patterns and protection are the same."""

    def behaviour(decorator: Callable[..., Any]) -> list[object]:
        cls = declare(decorator, options)
        first, same, other = cls(name="a"), cls(name="a", hidden=2), cls(name="b", items=["x"])
        seen: list[object] = [str(inspect.signature(cls)), cls.__match_args__, cls.__qualname__]
        seen += [repr(first).partition(" at 0x")[0], first == same, first == other, first != same]
        seen += [first == "a", other.derived, other.items, first.items is same.items]
        seen += [dataclasses.asdict(other), dataclasses.replace(other, name="c").derived]
        seen.append(copy.copy(other).items is other.items)
        actions: list[Callable[[], object]] = [
            lambda: hash(first) == hash(same),
            lambda: first < other,
            lambda: repr(cls("a", 1).name),
            lambda: repr(cls().name),
            lambda: setattr(first, "name", "d"),
            lambda: setattr(first, "more", "d"),
            lambda: delattr(other, "name"),
        ]
        for action in actions:
            try:
                seen.append(action())
            except (TypeError, AttributeError):  # CPython 3.11 mixes them up
                seen.append("refused")
        return [*seen, first.name, cls.__init__.__annotations__]

    assert behaviour(dataclasses.dataclass) == behaviour(dataclass)


@dataclass(frozen=True, slots=True)
class Point:
    """A class that pickle finds by its name."""

    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Labelled(Point):
    """A frozen class derived from another one."""

    label: str = ""


class Undecorated(Point):
    """A subclass that is no dataclass of its own."""

    __slots__ = ()


def test_instances_are_pickled_and_copied() -> None:
    """Frozen instances with slots, too."""
    for point in (Point(1, 2), Labelled(1, 2, "a")):
        assert point == pickle.loads(pickle.dumps(point)) == copy.deepcopy(point)  # noqa: S301 -- our own


def test_subclasses_inherit_methods_generated_later() -> None:
    """A subclass may be used before its base."""

    @dataclass(slots=True)
    class Base:
        x: int = 0

    @dataclass(slots=True)
    class Derived(Base):
        y: int = 0

    assert Derived(1, 2) == Derived(1, 2) != Derived(1, 3)
    assert Base(1) == Base(1) != Derived(1)
    assert Undecorated(3) == Undecorated(3)
    assert repr(Undecorated(3)) == "Undecorated(x=3, y=0)"
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        Undecorated(3).x = 4  # type: ignore[misc]  # what is tested
    with pytest.raises(TypeError, match="non-frozen"):
        dataclass(type("Open", (Point,), {"__annotations__": {"z": int}, "z": 0}))


def test_methods_of_the_class_are_kept() -> None:
    """Text, equality and hash that a class defines itself."""

    @dataclass(frozen=True, slots=True)
    class Word:
        text: str

        def __repr__(self) -> str:
            return self.text

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Word) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

    assert {Word("a"), Word("A")} == {Word("a")}
    assert repr(Word("A")) == "A"


def test_nothing_is_generated_before_its_first_use() -> None:
    """The generated method replaces its placeholder."""

    @dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: int

    before = dict(vars(Pair))
    Pair(1, 2)
    after = dict(vars(Pair))

    changed = {name for name, value in after.items() if value is not before[name]}
    assert changed == {
        "__init__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
    }
    assert inspect.isfunction(after["__init__"])


def test_slots_and_fields_are_those_of_the_standard_library() -> None:
    """Annotations that declare no field, and bases with and without slots."""

    def shape(decorator: Callable[..., Any]) -> list[object]:
        class Base:
            shared: int = 0

        base = decorator(slots=True)(Base)

        class Open:
            late: str = "late"

        open_base = decorator()(Open)

        class Pseudo:
            count: ClassVar[int] = 3
            total: "ClassVar[int]" = 4
            plain: "dict[str, int]" = field(default_factory=dict)
            _: KW_ONLY
            last: int | None = None

        derived: dict[str, Any] = {"__annotations__": {"shared": int, "own": str}}
        derived |= {"shared": 1, "own": "own"}
        of_open: dict[str, Any] = {"__annotations__": {"own": str}, "own": "own"}
        made = [
            decorator(slots=True)(Pseudo),
            decorator(slots=True)(type("Derived", (base,), derived)),
            decorator(slots=True)(type("OfOpen", (open_base,), of_open)),
        ]
        first = made[0]({}, last=1)
        seen: list[object] = [first.plain, first.last, Pseudo.count, made[0].total]
        for cls in made:
            seen += [cls.__slots__, cls.__match_args__, cls.__qualname__, hasattr(cls, "own")]
            seen += [(each.name, each.kw_only, each.default) for each in dataclasses.fields(cls)]
            seen += [dataclasses.is_dataclass(cls), repr(cls.__dataclass_params__)]
        return [*seen, repr(made[1]()), repr(made[2]())]

    assert shape(dataclasses.dataclass) == shape(dataclass)


def test_the_package_uses_no_other_decorator() -> None:
    """Importing the original costs each command that loads the module."""
    package = Path(koordinator.__file__).parent
    original = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)

    others = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if original.search(path.read_text())
    }

    assert others <= {"foundation/lazy_dataclass.py"}
