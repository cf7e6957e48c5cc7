"""Shares of the last-level cache and the memory bandwidth, by QoS class and by pod.

Source: koordinator pkg/koordlet/qosmanager/plugins/resctrl/resctrl_reconcile.go;
pkg/koordlet/runtimehooks/hooks/resctrl.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from koordinator.api.annotations.pod_qos import ResctrlConfig, ResctrlResource
from koordinator.api.qos import QosClass
from koordinator.api.resource_qos import ResctrlQos
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import path_component
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.intents import Intent, RemoveResctrl, SetResctrl
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_AMD: Final = "AuthenticAMD"
_AMD_UNITS: Final = 160  # of 1/8 GB/s: 80 % of 25 GB/s
_AMD_UNLIMITED: Final = 2048
_INTEL_STEP: Final = 10
_BANDWIDTH: Final = "MB"

POD_GROUP_PREFIX = "koordlet-"
CLASS_GROUPS: Final = (QosClass.LSR, QosClass.LS, QosClass.BE)


def l3_mask(full_mask: int, start_percent: int, end_percent: int) -> int:
    """Return the mask of the ways between two percentages, including partly covered ones.

    Raises InputError for a full mask with holes, and for an invalid or empty range.
    """
    ways = full_mask.bit_length()
    if not full_mask or full_mask != (1 << ways) - 1:
        raise InputError(f"must be contiguous from the lowest bit, got {full_mask:x}", path="L3")
    if not 0 <= start_percent < end_percent <= 100:  # noqa: PLR2004 -- percent
        raise InputError(
            f"must be a range in 0..100, got {start_percent}..{end_percent}", path="L3"
        )
    start, end = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    mask = (1 << end) - (1 << start)
    if not mask:
        got = f"got {start_percent}..{end_percent} %"
        raise InputError(f"must cover at least one of {ways} cache ways, {got}", path="L3")
    return mask


def memory_bandwidth(percent: int, vendor: str) -> int:
    """Return the value of an ``MB:`` line: percent on Intel, units of 1/8 GB/s on AMD.

    Raises InputError for a percentage outside of 1..100.
    """
    if not 1 <= percent <= 100:  # noqa: PLR2004 -- percent
        raise InputError(f"must be in 1..100, got {percent}", path="MB")
    if vendor == _AMD:
        unlimited = percent == 100  # noqa: PLR2004 -- percent
        return _AMD_UNLIMITED if unlimited else _AMD_UNITS * percent // 100
    return -(-percent // _INTEL_STEP) * _INTEL_STEP


def l3_line(masks: dict[int, int]) -> str:
    """Return ``L3:0=ff;1=ff`` for masks by cache id."""
    return "L3:" + ";".join(f"{cache}={mask:x}" for cache, mask in sorted(masks.items()))


def mb_line(values: dict[int, int]) -> str:
    """Return ``MB:0=100;1=100`` for values by cache id."""
    return f"{_BANDWIDTH}:" + ";".join(
        f"{cache}={value}" for cache, value in sorted(values.items())
    )


def parse_schemata(text: str) -> dict[str, dict[int, int]]:
    """Return the values by resource and cache id.

    The kernel pads them with zeros or blanks to equal width.  Invalid lines are skipped.
    Source: Linux fs/resctrl/ctrlmondata.c, ``show_doms``.
    """
    schemata = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(":")
        base = 10 if name.endswith(_BANDWIDTH) else 16
        pairs = (part.partition("=") for part in rest.split(";"))
        try:
            schemata[name] = {int(cache): int(value, base) for cache, _, value in pairs}
        except ValueError:
            continue
    return schemata


@dataclass(frozen=True, slots=True)
class ResctrlFacts:
    """Caches of this machine: ids, full mask, vendor, existing groups.

    ``has_bandwidth`` is whether memory bandwidth can be allocated, too.
    """

    cache_ids: tuple[int, ...]
    full_mask: int
    vendor: str
    groups: tuple[str, ...] = ()
    has_bandwidth: bool = True


def wants_resctrl(view: NodeView) -> bool:
    """Return whether any class or pod has a share of caches."""
    is_wanted = any(_settings(view, qos).enable for qos in CLASS_GROUPS)
    return is_wanted or any(_own(view, pod) is not None for pod in view.active_pods)


def plan_class_resctrl(view: NodeView, facts: ResctrlFacts) -> list[Intent]:
    """Return a group per class; pods with shares of their own are in no class."""
    intents: list[Intent] = []
    for qos in CLASS_GROUPS:
        settings = _settings(view, qos)
        pods = (
            pod for pod in view.active_pods if _group_of(pod) is qos and _own(view, pod) is None
        )
        try:
            schemata = _class_schemata(settings, facts)
        except InputError:
            continue  # the NodeSLO was validated, so the caches of the machine are unusual
        reason = f"resctrl: class {qos}"
        intents.append(SetResctrl(qos, schemata, tuple(_folders(view, pods)), reason))
    return intents


def plan_pod_resctrl(view: NodeView, facts: ResctrlFacts) -> list[Intent]:
    """Return the group of each pod with its own shares, and remove obsolete groups."""
    intents: list[Intent] = []
    keep = set()
    for pod in view.active_pods:
        own = _own(view, pod)
        if own is None:
            continue
        try:
            group = path_component(POD_GROUP_PREFIX + pod.uid)
            schemata = _pod_schemata(own, facts)
        except InputError:
            continue
        keep.add(group)
        reason = f"resctrl: annotation of {pod.key}"
        intents.append(SetResctrl(group, schemata, tuple(_folders(view, [pod])), reason))
    intents += [
        RemoveResctrl(group, "resctrl: the pod has ended or has no share")
        for group in facts.groups
        if group.startswith(POD_GROUP_PREFIX) and group not in keep
    ]
    return intents


def _settings(view: NodeView, qos: QosClass) -> ResctrlQos:
    """Return the share of a class; classes without a group have no limit."""
    strategy = view.qos_strategy
    classes = {
        QosClass.LSR: strategy.lsr_class,
        QosClass.LS: strategy.ls_class,
        QosClass.BE: strategy.be_class,
    }
    section = classes.get(qos)
    return (section.resctrl_qos if section is not None else None) or ResctrlQos()


def _class_schemata(settings: ResctrlQos, facts: ResctrlFacts) -> tuple[str, ...]:
    lines = []
    start, end = settings.cat_range_start_percent, settings.cat_range_end_percent
    if start is not None and end is not None:
        mask = l3_mask(facts.full_mask, start, end)
        lines.append(l3_line(dict.fromkeys(facts.cache_ids, mask)))
    if settings.mba_percent is not None and facts.has_bandwidth:
        value = memory_bandwidth(settings.mba_percent, facts.vendor)
        lines.append(mb_line(dict.fromkeys(facts.cache_ids, value)))
    return tuple(lines)


def _pod_schemata(config: ResctrlConfig, facts: ResctrlFacts) -> tuple[str, ...]:
    masks = {
        cache: l3_mask(facts.full_mask, *limits)
        for cache, limits in _ranges(config.llc, facts).items()
    }
    values = {
        cache: memory_bandwidth(percent, facts.vendor)
        for cache, percent in _percentages(config.mb, facts).items()
    }
    lines = [l3_line(masks)] if masks else []
    return (*lines, mb_line(values)) if values and facts.has_bandwidth else tuple(lines)


def _ranges(resource: ResctrlResource, facts: ResctrlFacts) -> dict[int, tuple[int, int]]:
    ranges = {}
    if resource.schemata.range:
        ranges = dict.fromkeys(facts.cache_ids, _range(resource.schemata.range))
    for each in resource.schemata_per_cache:
        if each.range and each.cache_id in facts.cache_ids:
            ranges[each.cache_id] = _range(each.range)
    return ranges


def _range(limits: tuple[int, ...]) -> tuple[int, int]:
    if len(limits) != 2:  # noqa: PLR2004 -- from, to
        raise InputError(f"must have a start and an end, got {list(limits)}", path="range")
    return limits[0], limits[1]


def _percentages(resource: ResctrlResource, facts: ResctrlFacts) -> dict[int, int]:
    percentages = {}
    if resource.schemata.percent:
        percentages = dict.fromkeys(facts.cache_ids, resource.schemata.percent)
    for each in resource.schemata_per_cache:
        if each.percent and each.cache_id in facts.cache_ids:
            percentages[each.cache_id] = each.percent
    return percentages


def pod_group(view: NodeView, pod: PodView) -> str | None:
    """Return the group of a pod with its own shares; None if it has none."""
    try:
        return path_component(POD_GROUP_PREFIX + pod.uid) if _own(view, pod) is not None else None
    except InputError:
        return None


def _own(view: NodeView, pod: PodView) -> ResctrlConfig | None:
    return pod.cache_shares(_settings(view, _group_of(pod)))


def _group_of(pod: PodView) -> QosClass:
    return QosClass.LSR if pod.qos is QosClass.LSE else pod.qos


def _folders(view: NodeView, pods: Iterable[PodView]) -> Iterator[str]:
    for pod in pods:
        if pod.containers:  # the phase is Pending while init containers run
            yield from (container.folder for container in pod.containers)
            yield from view.sandboxes.get(pod.folder, ())
