"""A configuration becomes extenders that can be asked."""

from collections.abc import Callable

from koordinator.api.kubescheduler import Extender as ExtenderConfig
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.extenders.service import ExtenderService, ExtenderTransport

#: Makes the transport of an extender; raises InputError for certificates that don't do.
Connect = Callable[[ExtenderConfig], ExtenderTransport]


def build_extenders(
    configuration: KubeSchedulerConfiguration,
    clock: Clock,
    connect: Connect,
    *,
    source: str = "",
    may_bind: Callable[[], bool] = lambda: True,
    on_ignored: Callable[[str, str], None] = lambda _name, _problem: None,
) -> tuple[ExtenderService, ...]:
    """Return the extenders of a configuration, in its order.

    ``may_bind`` says whether this process still leads; ``on_ignored`` hears of failures that stop
    nobody: the extender's name, and what happened.
    Raises InputError with the path of the extender that can't be connected to.
    """
    extenders = []
    for index, config in enumerate(configuration.extenders):
        try:
            transport = connect(config)
        except InputError as error:
            raise error.within(source=source, path=f"extenders[{index}]") from None
        extenders.append(
            ExtenderService(config, transport, clock, may_bind=may_bind, on_ignored=on_ignored)
        )
    return tuple(extenders)
