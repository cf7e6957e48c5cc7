"""Attribution of exceptions to plugins and objects.

The loop and the bindings catch them; see ``docs/decisions/0007``.
"""

from collections.abc import Iterable, Sequence
from traceback import walk_tb
from types import FunctionType, TracebackType

from koordinator.api.codec import subject_of
from koordinator.api.meta import KubeObject
from koordinator.foundation.errors import Fault, FaultHandler, fault_of
from koordinator.scheduler.contract import ActivePlugin, Profile
from koordinator.scheduler.queue import SchedulingQueue


class PluginIsolation:
    """Converter of exceptions to faults with the plugin that raised them."""

    def __init__(self, profiles: Sequence[Profile], handler: FaultHandler) -> None:
        self._handler = handler
        actives = [active for profile in profiles for active in _actives(profile)]
        self._plugins = {id(active.plugin): active.name for active in actives}
        #: (plugin, hint) of functions in ``hints``, whose frames have no plugin as ``self``
        self._functions = {
            hint.__code__: (active.name, name)
            for active in {id(active.plugin): active for active in actives}.values()
            for name, hint in active.hints.overrides().items()
            if isinstance(hint, FunctionType)
        }
        self._kept_alive = tuple(profiles)  # ids of freed objects would be reused

    def fault(self, stage: str, error: Exception, about: str) -> Fault:
        """Return the fault; re-raise an error that is none: of the cluster, or lack of memory."""
        fault = fault_of(stage, error, about=about)
        for frame, _ in walk_tb(error.__traceback__):
            if frame.f_code in self._functions:
                name, hint = self._functions[frame.f_code]
                return Fault(hint, error, name, about)
            plugin = self._plugins.get(id(frame.f_locals.get("self")))
            if plugin is not None:
                return Fault(frame.f_code.co_name.lstrip("_"), error, plugin, about)
        return fault

    def report(self, fault: Fault) -> None:
        """Report a fault to the handler, after the state has been restored."""
        self._handler(fault)

    def note(self, stage: str, error: Exception, about: str = "") -> Fault:
        """Report a fault after which there is nothing to restore; return it."""
        fault = self.fault(stage, error, about)
        self.report(fault)
        return fault

    def report_hint_errors(self, queue: SchedulingQueue) -> None:
        """Report queueing hints that raised; the pods were requeued regardless."""
        for plugin, error in queue.take_hint_errors().items():
            self.report(Fault("hint", error, plugin))

    def barrier(self, stage: str, about: str | KubeObject = "") -> "Barrier":
        """Return a context that reports its exceptions; ``about`` is the object, or its name."""
        return Barrier(self, stage, about)


class Barrier:
    """Context manager that reports an exception as a fault."""

    __slots__ = ("_about", "_isolation", "_stage")

    def __init__(self, isolation: PluginIsolation, stage: str, about: str | KubeObject) -> None:
        self._isolation, self._stage, self._about = isolation, stage, about

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        about = self._about
        self._isolation.note(
            self._stage, error, about if isinstance(about, str) else subject_of(about)
        )
        return True


def _actives(profile: Profile) -> Iterable[ActivePlugin]:
    for name in profile.__dataclass_fields__:
        value = getattr(profile, name)
        if isinstance(value, tuple):
            yield from value
