"""``dataclass`` of the standard library, with methods that are generated at their first use.

The original compiles up to eight methods per class when its module is imported.  A command loads
300 dataclasses and uses a third of them, most of these for construction alone: generating the rest
took a fifth of its start.  The constructor is compiled here: with the original's come two methods
that protect a frozen class, which need no compiler.  All else is the original's, and type checkers
see nothing but the original.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

#: Option of the original that generates a method.
_OPTIONS: Final = {
    "__repr__": "repr",
    "__eq__": "eq",
    "__hash__": "unsafe_hash",
}


class _LazyMethod:
    """Descriptor that replaces itself by the generated method when it is read."""

    __slots__ = ("_name", "_owner")

    def __init__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = _generate(self._owner, self._name)
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


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


def _freeze(cls: Any) -> None:
    """Make the fields of a class read-only."""

    def refuse(self: object, action: str, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot {action} field {name!r}")

    def set_attribute(self: object, name: str, value: object) -> None:
        refuse(self, "assign to", name)
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: object, name: str) -> None:
        refuse(self, "delete", name)
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = set_attribute, delete_attribute


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _is_rare(cls: type, options: Mapping[str, bool]) -> bool:
    if options.keys() & {"order", "init"} or vars(cls).keys() & {"__setattr__", "__delattr__"}:
        return True
    if options.get("unsafe_hash") and "__hash__" in vars(cls):
        return True
    bases = (getattr(base, "__dataclass_params__", None) for base in cls.__mro__[1:])
    return any(params.frozen for params in bases if params is not None)


def _decorate(
    cls: Any,
    *,
    repr: bool = True,  # noqa: A002 -- the original's name
    eq: bool = True,
    unsafe_hash: bool = False,
    frozen: bool = False,
    slots: bool = False,
    **others: bool,
) -> Any:
    # The generated methods are the expensive part of a dataclass, and most classes of a process are
    # never used.  Only fields and parameters are computed now; ``_LazyMethod`` compiles the rest.
    own = cls.__dict__
    own_hash = own.get("__hash__") is not None
    wanted = {"__init__": True, "__repr__": repr, "__eq__": eq}
    lazy = [name for name, is_wanted in wanted.items() if is_wanted and name not in own]
    if (unsafe_hash or (eq and frozen)) and not own_hash:
        lazy.append("__hash__")
    if not cls.__doc__:
        cls.__doc__ = cls.__name__
    bare: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, **others)
    cls = bare(cls)
    params = cls.__dataclass_params__
    params.init, params.repr, params.eq = True, repr, eq
    params.unsafe_hash, params.frozen = unsafe_hash, frozen
    for name in lazy:
        setattr(cls, name, _LazyMethod(cls, name))
    if eq and not own_hash and "__hash__" not in lazy:
        cls.__hash__ = None
    if frozen:
        _freeze(cls)
        if slots and "__getstate__" not in own:
            cls.__getstate__, cls.__setstate__ = _get_state, _set_state
    return cls


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
