"""Every plugin of the package through the suite for plugins."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.equipped_nodes import machine_pods, machine_rooms
from tests.measured_nodes import ARGUMENTS, measured_clusters, measured_pods
from tests.reservations import reserved_rooms, reserving_pods

from koordinator.api.kubescheduler import decode_args
from koordinator.scheduler.contract import POINTS, PluginSpec, points_of
from koordinator.scheduler.profile import UPSTREAM_POINTS, builtin_plugins
from koordinator.testing.scheduler_plugins import (
    Args,
    PluginCheck,
    check_helpful_events_wake_pods,
    check_skipped_filter_rejects_nothing,
    check_skipped_score_is_constant,
    check_skipping_depends_on_the_pod,
    plugin_contract,
)
from koordinator.testing.strategies import FOO, clusters, pods

#: What a plugin is excused from.
WITHOUT: Mapping[str, tuple[PluginCheck, ...]] = {
    # Only ``filters`` selects the pods of the filter, which does not look at the pod again.
    "NodeUnschedulable": (check_skipped_filter_rejects_nothing,),
    "NodeName": (check_skipped_filter_rejects_nothing,),
    "SchedulingHint": (check_skipped_filter_rejects_nothing,),
    # Pods without requests would all get the emptiest node: kube-scheduler leaves them out.
    "NodeResourcesBalancedAllocation": (check_skipped_score_is_constant,),
    # As with filters: only ``scores`` selects the pods that prefer to be near others.
    "Coscheduling": (check_skipped_score_is_constant,),
    # Pods without GPUs are left to the other plugins.
    "GPUPacking": (check_skipped_score_is_constant,),
    "GPUClustering": (check_skipped_score_is_constant,),
}

_RATIO = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
_BY_NAME = {spec.name: spec for spec in builtin_plugins()}


@pytest.mark.slow
@plugin_contract(*builtin_plugins(), without=WITHOUT)
def test_the_plugin_keeps_the_contract(check: Callable[[], None]) -> None:
    """Pure, bounded, blind to node order, subset-invariant, honest about what it reads."""
    check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated"}}),
        (
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": _RATIO,
                    "resources": [{"name": "cpu", "weight": 3}, {"name": FOO, "weight": 1}],
                },
                "ignoredResources": [FOO],
            },
        ),
        (
            "NodeAffinity",
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
                        ]
                    }
                }
            },
        ),
        ("InterPodAffinity", {"hardPodAffinityWeight": 0}),
    ],
)
def test_other_arguments_keep_the_contract(name: str, args: Args) -> None:
    """The arguments select other code of the plugin than the defaults."""
    mark = plugin_contract(_BY_NAME[name], args={name: args})
    (case,) = mark.args[1]
    case.values[0]()


@pytest.mark.slow
def test_device_share_keeps_the_contract_when_it_packs() -> None:
    """The clusters include some with free devices only, where no node is better than another."""
    args = {"DeviceShare": {"scoringStrategy": {"type": "MostAllocated"}}}
    mark = plugin_contract(_BY_NAME["DeviceShare"], args=args, worlds=(clusters(), pods()))
    (case,) = mark.args[1]
    case.values[0]()


@pytest.mark.slow
@plugin_contract(
    *(_BY_NAME[name] for name in ("DeviceShare", "NodeNUMAResource", "NodeResourcesFit")),
    without={"NodeNUMAResource": (check_skipping_depends_on_the_pod,)},
    worlds=(machine_rooms(), machine_pods()),
)
def test_the_contract_on_machines_with_devices_and_numa_nodes(check: Callable[[], None]) -> None:
    """NodeNUMAResource applies depending on the policies of nodes, too."""
    check()


_LOAD_AWARE = {
    f"LoadAwareScheduling {number}": arguments for number, arguments in enumerate(ARGUMENTS)
}


@pytest.mark.slow
@plugin_contract(
    *(replace(_BY_NAME["LoadAwareScheduling"], name=name) for name in _LOAD_AWARE),
    args=_LOAD_AWARE,
    worlds=(measured_clusters(), measured_pods()),
)
def test_the_contract_on_nodes_that_report_their_usage(check: Callable[[], None]) -> None:
    """By every kind of usage and threshold."""
    check()


@pytest.mark.slow
@plugin_contract(
    *(_BY_NAME[name] for name in ("Reservation", "NodeResourcesFit", "InterPodAffinity")),
    without={
        "Reservation": (check_skipping_depends_on_the_pod, check_helpful_events_wake_pods),
    },
    worlds=(reserved_rooms(), reserving_pods()),
)
def test_the_contract_where_nodes_have_reservations(check: Callable[[], None]) -> None:
    """Reservation applies depending on the pod's reservations, too.

    A pod that uses up a reservation leaves the decision about its node to NodeResourcesFit.
    """
    check()


@pytest.mark.parametrize("spec", builtin_plugins(), ids=lambda spec: spec.name)
def test_the_spec_is_whole(spec: PluginSpec[Any]) -> None:
    """Arguments have defaults; the plugin declares its extension points and its reads."""
    decode_args(spec.args, {}, "args", "test")

    assert points_of(spec) | UPSTREAM_POINTS.get(spec.name, frozenset())
    assert points_of(spec) <= POINTS.keys()
    if points_of(spec) & {"filter", "score"}:
        assert hasattr(spec.plugin_type, "reads")


def test_names_are_unique() -> None:
    """A configuration names plugins."""
    assert len(_BY_NAME) == len(builtin_plugins())
