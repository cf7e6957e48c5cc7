"""``dataclass`` of the standard library, with methods that are generated at their first use.

The original compiles up to eight methods per class when its module is imported.  A command loads
300 dataclasses and uses a third of them, most of these for construction alone: generating the rest
took a fifth of its start.  The constructor is compiled here: with the original's come two methods
that protect a frozen class, which need no compiler.  A class with slots is made here once it has
all its attributes; its fields are described at their first use, by the original.  All else is the
original's, and type checkers see nothing but the original.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

__all__ = ["dataclass"]

#: Option of the original that generates a method.
_OPTIONS: Final = {
    "__repr__": "repr",
    "__eq__": "eq",
    "__hash__": "unsafe_hash",
}
_PROTECTORS: Final = ("__setattr__", "__delattr__")
_DESCRIPTIONS: Final = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


class _LazyMethod:
    """Descriptor that replaces itself by the generated method when it is read."""

    __slots__ = ("_name", "_owner")

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = _generate(self._owner, self._name)
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


class _LazyDescription:
    """Descriptor that replaces itself by the original's description of the fields.

    The original describes a stand-in with the annotations and defaults of the class, a new one each
    time: threads that read a description first at the same time get equal ones.
    """

    __slots__ = ("_declared", "_describe", "_name", "_owner")

    def __init__(self, declared: Mapping[str, Any], describe: Callable[[type], Any]) -> None:
        self._declared, self._describe = declared, describe

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        described = self._describe(type(self._owner.__name__, (), dict(self._declared)))
        for name in _DESCRIPTIONS:
            if isinstance(vars(self._owner)[name], _LazyDescription):
                setattr(self._owner, name, getattr(described, name, ()))
        return vars(self._owner)[self._name]


class _Factory:
    """Default of an argument whose field has a ``default_factory``, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


def _constructor(cls: Any) -> Any:
    """Return ``__init__``."""
    globals_: dict[str, Any] = {"__name__": cls.__module__}
    globals_ |= {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    arguments: dict[bool, list[str]] = {False: ["self"], True: []}  # by ``kw_only``
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        argument = value = field.name
        default = f"_default_{field.name}"
        if field.default_factory is not dataclasses.MISSING:
            globals_[default] = field.default_factory
            argument = f"{field.name}=_FACTORY"
            value = f"{default}() if {field.name} is _FACTORY else {field.name}"
        elif field.default is not dataclasses.MISSING:
            globals_[default] = field.default
            argument = f"{field.name}={default}"
        if field.init:
            arguments[bool(field.kw_only)].append(argument)
        elif default in globals_:
            value = default if field.default_factory is dataclasses.MISSING else f"{default}()"
        else:
            continue  # ``__post_init__`` sets it
        is_frozen = cls.__dataclass_params__.frozen
        lines.append(
            f"_set(self, {field.name!r}, {value})" if is_frozen else f"self.{field.name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    signature = ", ".join(
        [*arguments[False], *(["*", *arguments[True]] if arguments[True] else ())]
    )
    exec("\n ".join([f"def __init__({signature}):", *lines, "pass"]), globals_)  # noqa: S102 -- as the original
    method = globals_.pop("__init__")
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    annotations = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    method.__annotations__ = {**annotations, "return": None}
    return method


def _generate(cls: Any, name: str) -> Any:
    """Return the method that the original generates for a class with the same fields."""
    if name == "__init__":
        return _constructor(cls)
    if name in _PROTECTORS:
        return _protector(cls, name)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    namespace: dict[str, Any] = {
        **fields,
        "__annotations__": {field.name: field.type for field in fields.values()},
        "__doc__": cls.__name__,  # else the original writes one, which takes long
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    options = dict.fromkeys(("init", "repr", "eq", "match_args"), False) | {_OPTIONS[name]: True}
    decorate: Any = dataclasses.dataclass(**options)
    return vars(decorate(type(cls.__name__, (), namespace)))[name]


def _protector(cls: Any, name: str) -> Any:
    """Return the method of a frozen class that refuses to set or delete its fields."""

    def refuse(self: object, action: str, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot {action} field {name!r}")

    def set_attribute(self: object, name: str, value: object) -> None:
        refuse(self, "assign to", name)
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: object, name: str) -> None:
        refuse(self, "delete", name)
        super(cls, self).__delattr__(name)

    return set_attribute if name == "__setattr__" else delete_attribute


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _is_rare(cls: type, options: Mapping[str, bool]) -> bool:
    if options.keys() & {"order", "init"} or vars(cls).keys() & {*_PROTECTORS, "__slots__"}:
        return True
    if options.get("unsafe_hash") and "__hash__" in vars(cls):
        return True
    bases = (getattr(base, "__dataclass_params__", None) for base in cls.__mro__[1:])
    return any(params.frozen for params in bases if params is not None)


def _with_slots(declared: Any, members: Mapping[str, Any], *, weakref_slot: bool) -> Any:
    """Return the class with more members and a slot per field."""
    names = [*vars(declared).get("__annotations__", ())]
    if hasattr(declared, "__dataclass_fields__"):
        names = [field.name for field in dataclasses.fields(declared)]
    inherited: set[str] = set()
    for base in declared.__mro__[1:-1]:
        slots = vars(base).get("__slots__", ())
        inherited |= {slots} if isinstance(slots, str) else {*slots}
    own = dict(vars(declared))
    for name in names:
        own.pop(name, None)  # defaults would conflict with slots
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    slots = [*names, *(["__weakref__"] if weakref_slot else ())]
    own["__slots__"] = tuple(name for name in slots if name not in inherited)
    cls = type(declared)(declared.__name__, declared.__bases__, {**own, **members})
    cls.__qualname__ = declared.__qualname__
    return cls


def _is_described_early(cls: type) -> bool:
    """Return whether the class may have other fields than annotations."""
    annotations = vars(cls).get("__annotations__", {}).values()
    return hasattr(cls, "__dataclass_fields__") or not all(map(_declares_field, annotations))


def _declares_field(annotation: object) -> bool:
    if isinstance(annotation, str):
        return not any(name in annotation for name in ("ClassVar", "InitVar", "KW_ONLY"))
    if annotation is ClassVar or getattr(annotation, "__origin__", None) is ClassVar:
        return False
    return annotation is not dataclasses.KW_ONLY and not isinstance(annotation, dataclasses.InitVar)


def _decorate(
    cls: Any,
    *,
    repr: bool = True,  # noqa: A002 -- the original's name
    eq: bool = True,
    unsafe_hash: bool = False,
    frozen: bool = False,
    slots: bool = False,
    weakref_slot: bool = False,
    **others: bool,
) -> Any:
    def describe(declared: Any) -> Any:
        bare: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **others)
        params = bare(declared).__dataclass_params__
        params.init, params.repr, params.eq = True, repr, eq
        params.unsafe_hash, params.frozen = unsafe_hash, frozen
        return declared

    # The generated methods are the expensive part of a dataclass, and most classes of a process are
    # never used.  ``_LazyMethod`` compiles them at their first use.  Slots need only the names of
    # the fields: ``_LazyDescription`` computes fields and parameters at their first use.
    own = vars(cls)
    own_hash = own.get("__hash__") is not None
    members: dict[str, Any] = {"__hash__": None} if eq and not own_hash else {}
    lazy = {"__init__": True, "__repr__": repr, "__eq__": eq}
    names = [name for name, is_wanted in lazy.items() if is_wanted and name not in own]
    if (unsafe_hash or (eq and frozen)) and not own_hash:
        names.append("__hash__")
    members |= {name: _LazyMethod() for name in (*names, *(_PROTECTORS if frozen else ()))}
    if not cls.__doc__:
        cls.__doc__ = cls.__name__
    if not slots:
        describe(cls)
        for name, member in members.items():
            setattr(cls, name, member)
            if member is not None:
                member.__set_name__(cls, name)
        return cls
    if _is_described_early(cls):
        describe(cls)
    else:
        names = ["__annotations__", "__module__", "__doc__", *own.get("__annotations__", ())]
        declared = {name: own[name] for name in names if name in own}
        names = [name for name in _DESCRIPTIONS if name not in own]
        members |= {name: _LazyDescription(declared, describe) for name in names}
    if frozen and "__getstate__" not in own:
        members |= {"__getstate__": _get_state, "__setstate__": _set_state}
    return _with_slots(cls, members, weakref_slot=weakref_slot)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Callable[[type], type] | type:
        """Make a class a dataclass; the options are the original's.

        Subclasses of frozen classes, rare options, and classes that the original refuses take
        the original.
        """

        def decorate(cls: type) -> type:
            if _is_rare(cls, options):
                return dataclasses.dataclass(**options)(cls)
            return _decorate(cls, **options)

        return decorate if cls is None else decorate(cls)
