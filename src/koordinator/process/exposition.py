"""Metrics as Prometheus reads them; a family that breaks takes no other with it."""

from collections.abc import Callable, Iterable
from typing import cast

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from koordinator.foundation.faults import FaultHandler, fault_of

_Encoder = Callable[[CollectorRegistry], bytes]


class _Families:
    """A registry of what has been collected already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposed(registry: CollectorRegistry, accept: str, on_fault: FaultHandler) -> tuple[bytes, str]:
    """Return the text of all metrics in the format that ``accept`` selects, and its content type.

    Exceptions of collectors are passed to ``on_fault``; the text has the families of the others,
    and those that a failed collector had yielded before.  Raises TimeoutError of a collector,
    since a scrape would time out as well.
    """
    encode, content_type = choose_encoder(accept)
    try:
        return encode(registry), content_type
    except TimeoutError:
        raise
    except Exception:  # noqa: BLE001 -- comes up again below, where it is known over which family
        families = _sound(registry, encode, on_fault)
    return _encoded(encode, families), content_type


def joined(*registries: CollectorRegistry) -> CollectorRegistry:
    """Return a registry that has what all of these have, now and later."""
    together = CollectorRegistry()
    for registry in registries:
        together.register(_Joined(registry))
    return together


class _Joined(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()


def _sound(registry: CollectorRegistry, encode: _Encoder, on_fault: FaultHandler) -> list[Metric]:
    """Collect again; return the families that can be collected and encoded."""
    sound: list[Metric] = []
    for collector, names in dict(registry._collector_to_names).items():  # noqa: SLF001 -- else a registry is collected as a whole only
        source = names[0] if names else type(collector).__name__
        try:
            for family in collector.collect():
                if _is_sound(family, encode, on_fault):
                    sound.append(family)  # noqa: PERF401 -- what comes before a break is kept
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 -- reported
            on_fault(fault_of("metrics", error, source))
    return sound


def _is_sound(family: Metric, encode: _Encoder, on_fault: FaultHandler) -> bool:
    try:
        _encoded(encode, [family])
    except Exception as error:  # noqa: BLE001 -- reported
        on_fault(fault_of("metrics", error, family.name))
        return False
    return True


def _encoded(encode: _Encoder, families: Iterable[Metric]) -> bytes:
    return encode(cast("CollectorRegistry", _Families(families)))
