"""Configuration files of Terway, Alibaba's network plugin, with bandwidths of node and pods.

Source: koordinator pkg/koordlet/runtimehooks/hooks/terwayqos: terwayqos.go, types.go.
"""

from typing import Final

import msgspec

from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_qos import NetworkQos, ResourceQos
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

TERWAY: Final = "terway-qos"
NODE_FILE, POD_FILE = "global_bps_config", "pod.json"
_CGROUPS: Final = "/sys/fs/cgroup/net_cls"  # as Terway sees them
_PRIORITIES: Final = {
    QosClass.SYSTEM: 0,
    QosClass.LSE: 1,
    QosClass.LSR: 1,
    QosClass.LS: 1,
    QosClass.BE: 2,
}
_UNLABELLED: Final = {KubeQos.GUARANTEED: 1, KubeQos.BURSTABLE: 1, KubeQos.BEST_EFFORT: 2}
_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class TerwayFiles:
    """Content of the two files."""

    node: str
    pods: str


@dataclass(frozen=True, slots=True)
class _Bandwidths:
    """Bytes per second, except percentages: the original counts those in bits, and so here."""

    ingress_least: int = 0
    ingress_most: int = 0
    egress_least: int = 0
    egress_most: int = 0


def plan_terway(view: NodeView) -> TerwayFiles | None:
    """Return the files; None under another policy.

    Pods with an invalid annotation are omitted.  Raises InputError for a bandwidth of the NodeSLO
    that is invalid, or exceeds the node's.
    """
    policies = view.qos_strategy.policies
    if policies is None or policies.net_qos_policy != TERWAY:
        return None
    return TerwayFiles(_node_text(view), _pods_text(view))


def _node_text(view: NodeView) -> str:
    system = view.slo.system_strategy
    stated = system.total_network_bandwidth if system is not None else None
    total = stated.value() if stated is not None else 0
    if total < 0:
        path = "systemStrategy.totalNetworkBandwidth"
        raise InputError(f"must be at least 0, got {total}", path=path)
    strategy = view.qos_strategy
    latency = _bandwidths(strategy.ls_class, total, "lsClass")
    batch = _bandwidths(strategy.be_class, total, "beClass")
    lines = {"hw_tx_bps_max": total // _BITS, "hw_rx_bps_max": total // _BITS}
    for level, each in (("l1", latency), ("l2", batch)):
        lines |= {
            f"offline_{level}_tx_bps_min": each.egress_least,
            f"offline_{level}_tx_bps_max": each.egress_most,
            f"offline_{level}_rx_bps_min": each.ingress_least,
            f"offline_{level}_rx_bps_max": each.ingress_most,
        }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def _bandwidths(qos: ResourceQos | None, total: int, name: str) -> _Bandwidths:
    stated = (qos.network_qos if qos is not None else None) or NetworkQos()
    if not stated.enable:
        return _Bandwidths()

    def amount(value: int | str | None, field: str) -> int:
        path = f"resourceQOSStrategy.{name}.networkQOS.{field}"
        if value is None or isinstance(value, int):
            return (value or 0) * total // 100
        try:
            bytes_per_s = Quantity.parse(value).value() // _BITS
        except InputError as error:
            raise error.within(path=path) from None
        if not 0 <= bytes_per_s <= total:
            raise InputError(f"must be at most {total} bytes/s, got {value}", path=path)
        return bytes_per_s

    return _Bandwidths(
        amount(stated.ingress_request, "ingressRequest"),
        amount(stated.ingress_limit, "ingressLimit"),
        amount(stated.egress_request, "egressRequest"),
        amount(stated.egress_limit, "egressLimit"),
    )


def _pods_text(view: NodeView) -> str:
    entries = {}
    for pod in view.active_pods:
        limits = _limits(pod)
        if limits is None:
            continue
        ingress, egress = limits
        meta = pod.pod.metadata
        entries[meta.uid] = {
            "podName": meta.name,
            "podNamespace": meta.namespace,
            "podUID": meta.uid,
            "prio": _PRIORITIES.get(pod.labelled_qos, _UNLABELLED[pod.kube_qos]),
            "cgroupDir": f"{_CGROUPS}/{pod.folder}",
            "qosConfig": {"ingressBandwidth": ingress, "egressBandwidth": egress},
        }
    return msgspec.json.encode(entries, order="sorted").decode()


def _limits(pod: PodView) -> tuple[int, int] | None:
    """Return ingress and egress limits in bytes per second; None for an invalid annotation."""
    try:
        stated = pod.network_qos
        if stated is None:
            return 0, 0
        amounts = [
            max(Quantity.parse(text).value(), 0) // _BITS if text else 0
            for text in (stated.ingress_limit, stated.egress_limit)
        ]
    except InputError:
        return None
    return amounts[0], amounts[1]
