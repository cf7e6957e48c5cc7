"""Plugins as a profile enables them: methods that they have, and weights."""

from typing import Any

import pytest

from koordinator.scheduler.contract import METHODS, ActivePlugin, PluginHints


class Plain:
    """Plugin with a method, and further ones in its ``__dict__``."""

    def __init__(self, **more: object) -> None:
        vars(self).update(more)

    def applies(self, _pod: object) -> bool:
        return False


class Slotted:
    """Plugin whose attributes may be missing."""

    __slots__ = ("gangs", "hidden")
    gangs: tuple[()]
    hidden: bool

    @property
    def hints(self) -> PluginHints:
        if self.hidden:
            raise AttributeError
        return PluginHints(limits_sums=True)


class Proxy:
    """Plugin that passes on all attributes of another one."""

    def __init__(self, plugin: object) -> None:
        self.plugin = plugin

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plugin, name)


class Guard(Plain):
    """Plugin that computes every attribute."""

    def __getattribute__(self, name: str) -> Any:
        if name == "applies":
            raise AttributeError(name)
        return super().__getattribute__(name)


def slotted(*, hidden: bool, gangs: bool) -> Slotted:
    plugin = Slotted()
    plugin.hidden = hidden
    if gangs:
        plugin.gangs = ()
    return plugin


@pytest.mark.parametrize(
    "plugin",
    [
        Plain(),
        Plain(filter=print, hints=PluginHints()),
        *(
            slotted(hidden=hidden, gangs=gangs)
            for hidden in (True, False)
            for gangs in (True, False)
        ),
        Proxy(Plain(reserve=print)),
        Proxy(slotted(hidden=False, gangs=True)),
        Proxy(Proxy(Plain())),
        Guard(score=print),
        object(),
    ],
)
def test_methods_are_those_that_hasattr_finds(plugin: object) -> None:
    """Methods may come from the class, from the instance, or be computed."""
    active = ActivePlugin.of("Plugin", plugin)

    assert active.has == {name for name in METHODS if hasattr(plugin, name)}
    assert active.hints == getattr(plugin, "hints", PluginHints())


def test_weight_is_of_one_extension_point() -> None:
    """The plugin, its methods and its hints are the same at every extension point."""
    plain = ActivePlugin.of("Plugin", slotted(hidden=False, gangs=True), max_score=10)
    heavy = plain.with_weight(3)

    assert (plain.weight, heavy.weight) == (1, 3)
    assert heavy == ActivePlugin.of("Plugin", plain.plugin, 3, 10)
    assert heavy.hints is plain.hints
    assert heavy.has == plain.has
