"""Validation of network bandwidths of a resource QoS configuration.

Source: koordinator pkg/webhook/cm/plugins/sloconfig/resource_qos_checker.go.
"""

from collections.abc import Iterator

from koordinator.api.meta import LabelSelector
from koordinator.api.resource_qos import NetworkQos, ResourceQosStrategy
from koordinator.api.slo_config import ResourceQosConfig, SystemConfig
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

_WHOLE = 100
Bandwidth = int | str | None


def check_network_qos(config: ResourceQosConfig, system: SystemConfig) -> None:
    """Raise InputError for invalid bandwidths, mixed units, or sums above the total.

    Percentages may add up to 100, and quantities to the bandwidth of the nodes.  The original
    counts quantities as percentages, too, and therefore denies all of them.
    """
    strategies = [
        *([("ClusterStrategy", config.cluster_strategy)] if config.cluster_strategy else []),
        *((f"nodeStrategy.{i}", each) for i, each in enumerate(config.node_strategies)),
    ]
    for path, strategy in strategies:
        _check_each(strategy, f"ResourceQOSCfg.{path}")
    for index, strategy in _numbered(config):
        if len({type(each) for each in (*_ingress(strategy), *_egress(strategy))}) > 1:
            where = "clusterStrategy" if index is None else f"nodeStrategy[{index}]"
            raise InputError(f"only one type can be used for percentages or quantity in {where}")
    for index, strategy in _numbered(config):
        if _exceeds_whole(strategy):
            where = "ClusterStrategy" if index is None else f"cfg.NodeStrategies[{index}]"
            raise InputError(f"{where} total net bandwidth percentage already over 100")
    _check_totals(config, system)


def _check_totals(config: ResourceQosConfig, system: SystemConfig) -> None:
    cluster = system.cluster_strategy
    if config.cluster_strategy is not None and cluster is not None:
        total = cluster.total_network_bandwidth or Quantity(0)
        if _exceeds(config.cluster_strategy, total.value()):
            raise InputError("total net bandwidth over total network bandwidth in clusterStrategy")
    for index, strategy in enumerate(config.node_strategies):
        if _exceeds(strategy, _bandwidth_of(strategy.node_selector, system)):
            raise InputError(
                "total net bandwidth quantity already over total network bandwidth "
                f"in cfg.NodeStrategies[{index}]"
            )


def _bandwidth_of(selector: LabelSelector | None, system: SystemConfig) -> int:
    """Return the bandwidth of the nodes of a selector, by default the cluster's."""
    bandwidth: Quantity | None = None
    for each in system.node_strategies:
        if each.node_selector == selector:
            bandwidth = each.total_network_bandwidth
            break
    if bandwidth is None and system.cluster_strategy is not None:
        bandwidth = system.cluster_strategy.total_network_bandwidth
    return bandwidth.value() if bandwidth is not None else 0


def _numbered(config: ResourceQosConfig) -> Iterator[tuple[int | None, ResourceQosStrategy]]:
    if config.cluster_strategy is not None:
        yield None, config.cluster_strategy
    yield from enumerate(config.node_strategies)


def _classes(strategy: ResourceQosStrategy) -> Iterator[tuple[str, NetworkQos]]:
    named = (
        ("LSRClass", strategy.lsr_class),
        ("LSClass", strategy.ls_class),
        ("BEClass", strategy.be_class),
    )
    for name, qos in named:
        if qos is not None and qos.network_qos is not None:
            yield name, qos.network_qos


def _ingress(strategy: ResourceQosStrategy) -> list[int | str]:
    requests = (qos.ingress_request for _, qos in _classes(strategy))
    return [each for each in requests if each is not None]


def _egress(strategy: ResourceQosStrategy) -> list[int | str]:
    requests = (qos.egress_request for _, qos in _classes(strategy))
    return [each for each in requests if each is not None]


def _exceeds_whole(strategy: ResourceQosStrategy) -> bool:
    return any(
        sum(each for each in requests if isinstance(each, int)) > _WHOLE
        for requests in (_ingress(strategy), _egress(strategy))
    )


def _exceeds(strategy: ResourceQosStrategy, total: int) -> bool:
    """Return whether requests exceed a bandwidth; with a total of 0, any request does."""
    return any(
        sum(_amount(each, total) for each in requests) > total
        for requests in (_ingress(strategy), _egress(strategy))
    )


def _amount(bandwidth: int | str, total: int) -> int:
    if isinstance(bandwidth, int):
        return total * bandwidth // _WHOLE if total else bandwidth
    return Quantity.parse(bandwidth).value()


def _check_each(strategy: ResourceQosStrategy, path: str) -> None:
    for name, qos in _classes(strategy):
        fields: tuple[tuple[str, Bandwidth], ...] = (
            ("IngressRequest", qos.ingress_request),
            ("IngressLimit", qos.ingress_limit),
            ("EgressRequest", qos.egress_request),
            ("EgressLimit", qos.egress_limit),
        )
        for field, value in fields:
            where = f"{path}.{name}.{field}: Invalid value:"
            if isinstance(value, int) and not 0 <= value <= _WHOLE:
                raise InputError(f"{where} {value}: must be percentage value just in 0-100'")
            if isinstance(value, str):
                try:
                    Quantity.parse(value)
                except InputError as error:
                    raise InputError(f'{where} "{value}": {error}') from None
