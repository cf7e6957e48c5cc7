"""Reader and validator of workload files.

``decode_struct`` checks types and unknown fields; this module checks everything else.
"""

from collections.abc import Iterable
from importlib.resources import files
from itertools import islice
from pathlib import Path

from koordinator.api.kubescheduler import decode_struct
from koordinator.api.meta import KubeObject
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE
from koordinator.api.syntax import check_unique, numbered
from koordinator.api.validation import validate
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.quantity import Quantity
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.simulator.colocation.objects import is_configuration
from koordinator.simulator.generation import nodes_of, other_objects, pod_controllers
from koordinator.simulator.pod_streams import blueprints_of
from koordinator.simulator.workload import (
    ArrivalConfig,
    ColocationSettings,
    DistributionConfig,
    PodStream,
    TemplateConfig,
    UsageConfig,
    Workload,
    YarnSettings,
)

_MIN_STEP = Duration(seconds=10)  # time in which the suppression of a node converges


def read_workload(path: Path | str) -> Workload:
    """Read a workload.  Raises InputError with file, field, value and the expected form."""
    try:
        text = read_file(Path(path), LARGEST_CONFIGURATION_BYTES)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    return parse_workload(text, str(path))


def parse_workload(text: str | bytes, source: str) -> Workload:
    """Return the workload in a YAML text.  Raises as ``read_workload``."""
    workload = decode_struct(yaml_document(text, source), Workload, source)
    try:
        _check(workload)
    except InputError as error:
        raise error.within(source=source) from None
    return workload


def demo_workload() -> Workload:
    """Return the workload of ``koord demo``: ``data/demo.yaml`` of this package."""
    name = "data/demo.yaml"
    return parse_workload(files("koordinator.simulator").joinpath(name).read_bytes(), name)


# -- validation ------------------------------------------------------------------------------


def _check(workload: Workload) -> None:
    if not workload.node_pools:
        raise InputError("must have at least one pool", path="nodePools")
    check_unique((pool.name for pool in workload.node_pools), "nodePools", ".name")
    check_unique((stream.name for stream in workload.pod_streams), "podStreams", ".name")
    _check_span(workload.horizon, "horizon", positive=True)
    _check_span(workload.sample_every, "sampleEvery", positive=True)
    _check_span(workload.grace_period, "gracePeriod")
    _check_span(workload.toleration, "toleration")
    for path, pool in numbered(workload.node_pools, "nodePools"):
        _check_amount(pool.cpu, f"{path}.cpu")
        _check_amount(pool.memory, f"{path}.memory")
        if pool.gpus is not None:
            _check_amount(pool.gpus.memory, f"{path}.gpus.memory")
        check_unique(pool.zones, f"{path}.zones")
        for obj in islice(nodes_of(pool), 2):  # a node and its Device; the others differ in numbers
            _check_object(obj, path)
    for path, stream in numbered(workload.pod_streams, "podStreams"):
        _check_stream(stream, path)
        for blueprint in blueprints_of(stream, workload):
            _check_object(blueprint.pod, path)
    for obj in other_objects(workload):
        _check_object(obj, "objects")
    pod_controllers(workload)
    _check_failures(workload)
    if workload.colocation is not None:
        _check_colocation(workload, workload.colocation)
    if workload.yarn is not None:
        _check_yarn(workload, workload.yarn)


def _check_yarn(workload: Workload, yarn: YarnSettings) -> None:
    if workload.colocation is None:
        problem = "requires colocation, which reclaims the resources that YARN uses"
        raise InputError(problem, path="yarn")
    if not yarn.queues:
        raise InputError("must have at least one queue", path="yarn.queues")
    check_unique((queue.name for queue in yarn.queues), "yarn.queues", ".name")
    check_unique(yarn.pools, "yarn.pools")
    pools = [pool.name for pool in workload.node_pools]
    for path, name in numbered(yarn.pools, "yarn.pools"):
        if name not in pools:
            accepted = ", ".join(pools)
            raise InputError(f"must be one of {accepted}, got {name!r}", path=path)
    from koordinator.yarn.account import parse_grace_s  # noqa: PLC0415 -- an optional part

    try:
        parse_grace_s(yarn.shrink_grace_period)
    except InputError as error:
        raise error.within(path="yarn.shrinkGracePeriod") from None
    for path, queue in numbered(yarn.queues, "yarn.queues"):
        if not queue.name:
            raise InputError("must not be empty", path=f"{path}.name")
        _check_arrival(queue.arrival, f"{path}.arrival")
        _check_distribution(queue.duration, f"{path}.duration")
        _check_amount(queue.container.memory, f"{path}.container.memory")
        _check_usage(queue.container.usage, f"{path}.container.usage")


def _check_failures(workload: Workload) -> None:
    pools = {pool.name: pool for pool in workload.node_pools}
    for path, failure in numbered(workload.failures, "failures"):
        _check_pool(failure.pool, pools, path)
        _check_span(failure.mtbf, f"{path}.mtbf", positive=True)
        _check_distribution(failure.repair, f"{path}.repair")
    check_unique((failure.pool for failure in workload.failures), "failures", ".pool")
    for path, outage in numbered(workload.outages, "outages"):
        _check_pool(outage.pool, pools, path)
        _check_span(outage.at, f"{path}.at")
        _check_distribution(outage.repair, f"{path}.repair")
        last, count = outage.first + outage.nodes, pools[outage.pool].count
        if last > count:
            raise InputError(
                f"must be in 0..{count - 1}, the nodes of pool {outage.pool}, got "
                f"{outage.first}..{last - 1}",
                path=f"{path}.nodes",
            )


def _check_colocation(workload: Workload, config: ColocationSettings) -> None:
    if config.step < _MIN_STEP:
        raise InputError(f"must be at least {_MIN_STEP}, got {config.step}", path="colocation.step")
    streams = [stream.name for stream in workload.pod_streams]
    for path, spike in numbered(config.spikes, "colocation.spikes"):
        if spike.stream not in streams:
            accepted = ", ".join(streams)
            raise InputError(
                f"must be one of {accepted}, got {spike.stream!r}", path=f"{path}.stream"
            )
        _check_span(spike.at, f"{path}.at")
        _check_span(spike.lasts, f"{path}.lasts", positive=True)
        _check_rate(spike.factor, f"{path}.factor")
    qualities = {
        template.qos for s in workload.pod_streams for template in (s.template, *s.variants)
    }
    if "BE" not in qualities and workload.yarn is None:
        raise InputError(
            "must have at least one stream or variant of qos BE, or yarn, to use reclaimed "
            "resources",
            path="podStreams",
        )
    for obj in other_objects(workload):
        if is_configuration(obj):
            return
    raise InputError(
        f"must contain the ConfigMap {CONFIG_NAMESPACE}/{CONFIG_NAME}, which configures the "
        "colocation",
        path="objects",
    )


def _check_usage(usage: UsageConfig, path: str) -> None:
    if usage.cpu is not None and (usage.low is not None or usage.high is not None):
        raise InputError(
            "must not be set together with low or high: set cpu (steady), or low and high (a "
            "daily swing)",
            path=f"{path}.cpu",
        )
    if usage.low is not None and usage.high is None:
        raise InputError("is required with low and must be a percentage", path=f"{path}.high")
    if usage.high is not None and usage.high < (usage.low or 0):
        raise InputError(
            f"must be at least {usage.low}, the low end, got {usage.high}",
            path=f"{path}.high",
        )
    _check_span(usage.peak_at, f"{path}.peakAt")


def _check_object(obj: KubeObject, path: str) -> None:
    """Raise InputError for an object that Kubernetes would reject."""
    try:
        validate(obj)
    except InputError as error:
        problem = f"gives an invalid {obj.KIND}: {error.path}: {error.problem}"
        raise InputError(problem, path=path) from None


def _check_stream(stream: PodStream, path: str) -> None:
    _check_arrival(stream.arrival, f"{path}.arrival")
    if stream.duration is not None:
        _check_distribution(stream.duration, f"{path}.duration")
    _check_span(stream.resubmit.after, f"{path}.resubmit.after")
    _check_template(stream.template, f"{path}.template")
    for place, variant in numbered(stream.variants, f"{path}.variants"):
        _check_template(variant, place)
        if variant.duration is not None:
            _check_distribution(variant.duration, f"{place}.duration")


def _check_arrival(arrival: ArrivalConfig, path: str) -> None:
    if arrival.poisson is None and arrival.diurnal is None and not arrival.bursts:
        raise InputError(
            "must have at least one of poisson, diurnal, bursts",
            path=path,
        )
    if arrival.poisson is not None:
        _check_rate(arrival.poisson.per_hour, f"{path}.poisson.perHour")
    if arrival.diurnal is not None:
        low, high = arrival.diurnal.low_per_hour, arrival.diurnal.high_per_hour
        _check_rate(low, f"{path}.diurnal.lowPerHour")
        _check_rate(high, f"{path}.diurnal.highPerHour", at_least=low)
        _check_span(arrival.diurnal.peak_at, f"{path}.diurnal.peakAt")
    for place, burst in numbered(arrival.bursts, f"{path}.bursts"):
        _check_span(burst.at, f"{place}.at")
        _check_span(burst.over, f"{place}.over")


def _check_template(template: TemplateConfig, path: str) -> None:
    for name, amount in (("cpu", template.cpu), ("memory", template.memory)):
        if amount is not None:
            _check_amount(amount, f"{path}.{name}", zero=True)
    if template.gpus and template.gpu_percent:
        raise InputError(
            f"must not be set together with gpus, got {template.gpu_percent} with gpus "
            f"{template.gpus}: gpus counts whole GPUs, gpuPercent is a share of one",
            path=f"{path}.gpuPercent",
        )
    if template.usage is not None:
        _check_usage(template.usage, f"{path}.usage")
    if template.gather and template.members == 1:
        raise InputError(
            "requires at least 2 members, got 1",
            path=f"{path}.gather",
        )


def _check_distribution(config: DistributionConfig, path: str) -> None:
    given = [name for name in config.__struct_fields__ if getattr(config, name) is not None]
    if len(given) != 1:
        fields = ", ".join(given) or "none"
        accepted = ", ".join(config.__struct_fields__)
        raise InputError(f"must have exactly one of {accepted}, got {fields}", path=path)
    if config.constant is not None:
        _check_span(config.constant, f"{path}.constant")
    if config.exponential is not None:
        _check_span(config.exponential.mean, f"{path}.exponential.mean", positive=True)
    if config.lognormal is not None:
        _check_span(config.lognormal.median, f"{path}.lognormal.median", positive=True)
        _check_rate(config.lognormal.sigma, f"{path}.lognormal.sigma")
        if config.lognormal.most is not None:
            _check_span(config.lognormal.most, f"{path}.lognormal.most", positive=True)
    if config.uniform is not None:
        _check_span(config.uniform.low, f"{path}.uniform.low")
        low, high = config.uniform.low, config.uniform.high
        if high < low:
            raise InputError(
                f"must be at least {low}, the low end, got {high}",
                path=f"{path}.uniform.high",
            )


def _check_span(span: Duration, path: str, *, positive: bool = False) -> None:
    if span < Duration(0) or (positive and span == Duration(0)):
        accepted = "more than 0s" if positive else "at least 0s"
        raise InputError(f"must be {accepted}, got {span}", path=path)


def _check_amount(amount: Quantity, path: str, *, zero: bool = False) -> None:
    if amount.nanos < 0 or (amount.nanos == 0 and not zero):
        accepted = "at least 0" if zero else "more than 0"
        raise InputError(f"must be {accepted}, got {amount}", path=path)


def _check_rate(rate: float, path: str, *, at_least: float = 0.0) -> None:
    if not at_least <= rate < float("inf"):
        raise InputError(f"must be a number of at least {at_least:g}, got {rate}", path=path)


def _check_pool(name: str, pools: Iterable[str], path: str) -> None:
    if name not in pools:
        accepted = ", ".join(pools)
        raise InputError(f"must be one of {accepted}, got {name!r}", path=f"{path}.pool")
