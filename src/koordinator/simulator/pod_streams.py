"""Pods of a stream: specs, arrival times and durations."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from koordinator.api import labels, resource_names
from koordinator.api.annotations.gang import (
    NETWORK_TOPOLOGY_SPEC,
    GatherRule,
    NetworkTopologySpec,
)
from koordinator.api.core import (
    ResourceList,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from koordinator.api.defaults import NOT_READY, UNREACHABLE, with_defaults
from koordinator.api.meta import KubeObject, LabelSelector, ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.pod_groups import PodGroup, PodGroupSpec
from koordinator.api.policy import PriorityClass
from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.stages import Distribution, PodLife
from koordinator.simulator.usage import WHOLE, UsageCurve
from koordinator.simulator.workload import (
    ArrivalConfig,
    DistributionConfig,
    DiurnalConfig,
    PodStream,
    TemplateConfig,
    TolerationConfig,
    UsageConfig,
    VariantConfig,
    Workload,
)
from koordinator.simulator.world import Submission

_ENDLESS = DistributionConfig()
_NOTHING_ELSE = VariantConfig()
APP = "app"  # label of a pod: the name of its stream
_DAY_S = 86_400.0
_HOUR_S = 3_600.0
_WHOLE = 100


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Common properties of the pods of a variant."""

    pod: Pod
    weight: int
    duration: Distribution
    members: int = 1
    group: PodGroup | None = None  # gang of the pods
    usage: UsageCurve = WHOLE


def blueprints_of(stream: PodStream, workload: Workload) -> list[Blueprint]:
    """Return a blueprint for each variant; a stream without variants has one."""
    blueprints = []
    for variant in stream.variants or (_NOTHING_ELSE,):
        template = _template(stream, variant)
        blueprints.append(
            Blueprint(
                with_defaults(_pod(stream, template, workload)),
                variant.weight,
                (variant.duration or stream.duration or _ENDLESS).build(),
                template.members or 1,
                _group(stream, template),
                usage_curve(template.usage or UsageConfig(), stream.name),
            )
        )
    return blueprints


def priority_classes(workload: Workload) -> list[KubeObject]:
    """Return a class for each priority in use, as a pod's priority comes from its class."""
    classes: dict[str, KubeObject] = {}
    for stream in workload.pod_streams:
        for variant in stream.variants or (_NOTHING_ELSE,):
            template = _template(stream, variant)
            name = _class_name(template)
            if name:
                classes[name] = PriorityClass(
                    metadata=ObjectMeta(name=name),
                    value=template.priority or 0,
                    preemption_policy="Never" if template.preempts is False else None,
                )
    return [with_defaults(one) for one in classes.values()]


def submissions_of(
    stream: PodStream, workload: Workload, until_s: float, rng: np.random.Generator
) -> Iterator[Submission]:
    """Draw the arrivals up to ``until_s``, in order of time."""
    blueprints = blueprints_of(stream, workload)
    times_s = arrival_times(stream.arrival, until_s, rng)
    weights = np.array([blueprint.weight for blueprint in blueprints], float)
    chosen = rng.choice(len(blueprints), len(times_s), p=weights / weights.sum())
    kind = stream.kind or stream.name
    for number, (at_s, choice) in enumerate(zip(times_s.tolist(), chosen.tolist(), strict=True)):
        blueprint = blueprints[choice]
        life = PodLife(
            work_s=blueprint.duration.draw(rng),
            resubmissions=stream.resubmit.limit,
            resubmit_after_s=stream.resubmit.after.total_seconds(),
        )
        name, group = f"{stream.name}-{number}", blueprint.group
        if group is not None:
            group = replace(group, metadata=replace(group.metadata, name=name))
        for pod in _pods(blueprint, name):
            yield Submission(at_s, pod, kind, life, group, blueprint.usage)


def _pods(blueprint: Blueprint, name: str) -> Iterator[Pod]:
    """Yield the pod of an arrival, or the members of its job."""
    meta = blueprint.pod.metadata
    if blueprint.group is None:
        yield replace(blueprint.pod, metadata=replace(meta, name=name))
        return
    meta = replace(meta, labels={**meta.labels, labels.POD_GROUP: name})
    for index in range(blueprint.members):
        yield replace(blueprint.pod, metadata=replace(meta, name=f"{name}-{index}"))


def _group(stream: PodStream, template: TemplateConfig) -> PodGroup | None:
    """Return the PodGroup of a job of several pods."""
    if (template.members or 1) == 1:
        return None
    rules = tuple(GatherRule(layer=g.layer, strategy=g.strategy) for g in template.gather or ())
    annotations = (
        NETWORK_TOPOLOGY_SPEC.entry(NetworkTopologySpec(gather_strategy=rules)) if rules else {}
    )
    return PodGroup(
        metadata=ObjectMeta(name=stream.name, namespace=stream.namespace, annotations=annotations),
        spec=PodGroupSpec(min_member=template.members or 1),
    )


def usage_curve(config: UsageConfig, stream: str = "") -> UsageCurve:
    """Return the usage profile of a configuration; spikes of ``stream`` apply to it."""
    if config.high is not None:
        low, high = config.low or 0, config.high
    else:
        low = high = _WHOLE if config.cpu is None else config.cpu
    return UsageCurve(
        stream=stream,
        low=low / _WHOLE,
        high=high / _WHOLE,
        peak_s=config.peak_at.total_seconds(),
        memory=config.memory / _WHOLE,
    )


def _template(stream: PodStream, variant: VariantConfig) -> TemplateConfig:
    names = TemplateConfig.__struct_fields__
    given = {name: v for name in names if (v := getattr(variant, name)) is not None}
    if "gpus" in given or "gpu_percent" in given:
        given = {"gpus": None, "gpu_percent": None} | given
    return replace(stream.template, **given)


def _pod(stream: PodStream, template: TemplateConfig, workload: Workload) -> Pod:
    own = {APP: stream.name}
    if template.qos is not None:
        own[labels.POD_QOS_CLASS] = template.qos
    if template.quota is not None:
        own[labels.QUOTA_NAME] = template.quota
    amounts = _amounts(template)
    return Pod(
        metadata=ObjectMeta(
            name=stream.name, namespace=stream.namespace, labels={**(template.labels or {}), **own}
        ),
        spec=PodSpec(
            containers=(
                Container(
                    name="main", resources=ResourceRequirements(requests=amounts, limits=amounts)
                ),
            ),
            priority_class_name=_class_name(template),
            restart_policy="Always" if stream.duration is None else "Never",
            node_selector=template.node_selector or {},
            tolerations=_tolerations(template.tolerations or (), workload),
            topology_spread_constraints=tuple(
                TopologySpreadConstraint(
                    max_skew=spread.max_skew,
                    topology_key=spread.topology_key,
                    when_unsatisfiable=spread.when_unsatisfiable,
                    label_selector=LabelSelector(match_labels={APP: stream.name}),
                )
                for spread in template.spread or ()
            ),
        ),
    )


def _amounts(template: TemplateConfig) -> ResourceList:
    amounts: ResourceList = {}
    if template.cpu is not None:
        amounts[resource_names.CPU] = template.cpu
    if template.memory is not None:
        amounts[resource_names.MEMORY] = template.memory
    if template.gpus:
        amounts[resource_names.NVIDIA_GPU] = Quantity.from_int(template.gpus)
    if template.gpu_percent:
        percent = Quantity.from_int(template.gpu_percent)
        amounts[resource_names.GPU_CORE] = percent
        amounts[resource_names.GPU_MEMORY_RATIO] = percent
    return amounts


def _tolerations(configs: Sequence[TolerationConfig], workload: Workload) -> tuple[Toleration, ...]:
    """Return the stream's tolerations, then the timed tolerations of failed nodes."""
    own = tuple(
        Toleration(key=t.key, operator=t.operator, value=t.value, effect=t.effect) for t in configs
    )
    seconds = int(workload.toleration.total_seconds())
    covered = {t.key for t in own if t.effect in {"NoExecute", ""}}
    return own + tuple(
        replace(toleration, toleration_seconds=seconds)
        for toleration in (NOT_READY, UNREACHABLE)
        if not covered & {toleration.key, ""}
    )


def _class_name(template: TemplateConfig) -> str:
    """Return the name of the priority class; empty for priority 0 with preemption."""
    number = template.priority or 0
    if number == 0 and template.preempts is not False:
        return ""
    sign = "minus-" if number < 0 else ""
    suffix = "-never-preempting" if template.preempts is False else ""
    return f"priority-{sign}{abs(number)}{suffix}"


def arrival_times(arrival: ArrivalConfig, until_s: float, rng: np.random.Generator) -> FloatArray:
    """Draw arrival times in seconds up to ``until_s``, ascending."""
    parts = []
    if arrival.poisson is not None:
        parts.append(_poisson(arrival.poisson.per_hour, until_s, rng))
    if arrival.diurnal is not None:
        parts.append(_diurnal(arrival.diurnal, until_s, rng))
    for burst in arrival.bursts:
        at_s, over_s = burst.at.total_seconds(), burst.over.total_seconds()
        parts.append(at_s + over_s * np.arange(burst.count) / burst.count)
    times_s = np.concatenate(parts)
    times_s.sort()
    return times_s[times_s <= until_s]


def _poisson(per_hour: float, until_s: float, rng: np.random.Generator) -> FloatArray:
    times_s: FloatArray = rng.uniform(0.0, until_s, rng.poisson(per_hour * until_s / _HOUR_S))
    return times_s


def _diurnal(config: DiurnalConfig, until_s: float, rng: np.random.Generator) -> FloatArray:
    """Thin a Poisson process to a cosine rate between low and high, highest at ``peak_at``."""
    times_s = _poisson(config.high_per_hour, until_s, rng)
    low, high = config.low_per_hour, config.high_per_hour
    angle = 2 * math.pi * (times_s - config.peak_at.total_seconds()) / _DAY_S
    rate = low + (high - low) * (1 + np.cos(angle)) / 2
    kept: FloatArray = times_s[rng.uniform(0.0, max(high, 1e-300), len(times_s)) < rate]
    return kept
