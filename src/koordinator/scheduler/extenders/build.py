"""Construction of extenders from a configuration."""

from collections.abc import Callable

from koordinator.api.kubescheduler import Extender as ExtenderConfig
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.extenders.service import ExtenderService, ExtenderTransport

#: Factory of transports; raises InputError for invalid certificates.
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

    ``may_bind`` returns whether this process leads; ``on_ignored`` receives failures of ignorable
    extenders: name and problem.
    Raises InputError with the path of an extender whose connection settings are invalid.
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
