"""The arguments of plugins: defaults, and messages about wrong ones."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.api.kube_version import V1_35, V1_36, V1_37
from koordinator.api.kubescheduler import (
    API_VERSION,
    CoschedulingArgs,
    DefaultPreemptionArgs,
    DeviceShareArgs,
    DynamicResourcesArgs,
    ElasticQuotaArgs,
    FeatureGates,
    InterPodAffinityArgs,
    LoadAwareSchedulingArgs,
    NodeAffinityArgs,
    NodeNUMAResourceArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    NodeResourcesFitPlusArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ReservationArgs,
    ScarceResourceAvoidanceArgs,
    SchedulingHintArgs,
    VolumeBindingArgs,
    decode_args,
)
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

ARGS_TYPES = [
    CoschedulingArgs,
    DefaultPreemptionArgs,
    DeviceShareArgs,
    DynamicResourcesArgs,
    ElasticQuotaArgs,
    InterPodAffinityArgs,
    LoadAwareSchedulingArgs,
    NodeAffinityArgs,
    NodeNUMAResourceArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    NodeResourcesFitPlusArgs,
    PodTopologySpreadArgs,
    ReservationArgs,
    ScarceResourceAvoidanceArgs,
    SchedulingHintArgs,
    VolumeBindingArgs,
]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


class NoArgs(PluginArgs, frozen=True, kw_only=True):
    pass


def args(args_type: type[PluginArgs], fields: object) -> Any:
    return decode_args(args_type, fields, "profiles[0].pluginConfig[2].args", "koord.yaml")


def refusal(args_type: type[PluginArgs], fields: object) -> InputError:
    with pytest.raises(InputError) as caught:
        args(args_type, fields)
    return caught.value


def point(utilization: int, score: int) -> dict[str, int]:
    return {"utilization": utilization, "score": score}


def constraint(**fields: Any) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | fields


def required(expression: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize("args_type", ARGS_TYPES)
def test_every_plugin_takes_its_own_kind_and_no_other(args_type: type[PluginArgs]) -> None:
    """No arguments, or just the header, mean the defaults."""
    header = {"apiVersion": API_VERSION, "kind": args_type.__name__}

    assert args(args_type, header) == args(args_type, {}) == args_type()
    assert refusal(args_type, {"kind": "PodArgs"}).path.endswith("args.kind")


def test_null_means_that_the_field_is_absent() -> None:
    """As in every Kubernetes file, at any depth."""
    assert args(NodeResourcesFitArgs, {"scoringStrategy": None}) == NodeResourcesFitArgs()
    assert args(NodeResourcesFitArgs, None) == NodeResourcesFitArgs()


def test_arguments_of_an_unknown_version_are_refused() -> None:
    """The version of the file has no influence; v1beta2 and v1beta3 are accepted."""
    error = refusal(NodeResourcesFitArgs, {"apiVersion": "kubescheduler.config.k8s.io/v1beta1"})

    assert error.path == "profiles[0].pluginConfig[2].args.apiVersion"
    assert error.problem.startswith(f"must be {API_VERSION}, got ")


def test_a_plugin_without_arguments_takes_a_header_and_nothing_else() -> None:
    """The kind in the header is not checked, since no such type exists."""
    assert args(NoArgs, {"apiVersion": API_VERSION, "kind": "NodePortsArgs"}) == NoArgs()
    assert "must be one of apiVersion, kind" in refusal(NoArgs, {"a": 1}).problem


@pytest.mark.parametrize("args_type", ARGS_TYPES)
@settings(max_examples=examples(20))
@given(data=ANY_JSON, extra=st.data())
def test_any_arguments_are_decoded_or_rejected(
    args_type: type[PluginArgs], data: object, extra: st.DataObject
) -> None:
    """Nothing that a file can hold gets past the check and fails later."""
    names = st.sampled_from(sorted(args_type.__struct_encode_fields__))
    fields = extra.draw(st.dictionaries(names, ANY_JSON, max_size=2))
    for arguments in (data, fields):
        with suppress(InputError):
            assert isinstance(args(args_type, arguments), args_type)


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    """The full message, as a user sees it."""
    assert str(refusal(NodeResourcesFitArgs, {"scoringStrategi": {}})) == (
        "koord.yaml: profiles[0].pluginConfig[2].args.scoringStrategi: unknown field; "
        'did you mean "scoringStrategy"?'
    )


def test_a_wrong_choice_is_refused_with_the_accepted_ones() -> None:
    """The full message, as a user sees it."""
    assert str(refusal(NodeResourcesFitArgs, {"scoringStrategy": {"type": "mostallocated"}})) == (
        "koord.yaml: profiles[0].pluginConfig[2].args.scoringStrategy.type: "
        "must be one of LeastAllocated, MostAllocated, RequestedToCapacityRatio, "
        'got "mostallocated"; did you mean "MostAllocated"?'
    )


def test_resources_to_score_default_to_cpu_and_memory_of_weight_1() -> None:
    """A strategy with a type only, and a weight of 0, get the default as well."""
    decoded = args(
        NodeResourcesFitArgs,
        {"scoringStrategy": {"type": "MostAllocated", "resources": []}},
    )
    zero = args(NodeResourcesBalancedAllocationArgs, {"resources": [{"name": "a", "weight": 0}]})

    resources = [(each.name, each.weight) for each in decoded.scoring_strategy.resources]
    assert resources == [("cpu", 1), ("memory", 1)]
    assert zero.resources[0].weight == 1


def test_a_curve_of_utilization_is_decoded() -> None:
    """RequestedToCapacityRatio, with any number of rising points."""
    shape = [point(0, 0), point(50, 10), point(100, 3)]
    strategy = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}

    decoded = args(NodeResourcesFitArgs, {"scoringStrategy": strategy})

    points = decoded.scoring_strategy.requested_to_capacity_ratio.shape
    assert [(each.utilization, each.score) for each in points] == [(0, 0), (50, 10), (100, 3)]


@pytest.mark.parametrize(
    ("strategy", "path", "problem"),
    [
        ({}, "type", "required"),
        ({"type": "MostAllocated", "resources": [{}]}, "resources[0].name", "required"),
        (
            {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]},
            "resources[0].weight",
            "must be an integer of 0..100, got 101",
        ),
        ({"type": "RequestedToCapacityRatio"}, "requestedToCapacityRatio", "required"),
        *(
            (
                {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}},
                f"requestedToCapacityRatio.shape{path}",
                problem,
            )
            for shape, path, problem in (
                ([], "", "at least one point"),
                ([point(0, 11)], "[0].score", "0..10"),
                ([point(101, 0)], "[0].utilization", "0..100"),
                ([point(5, 0), point(5, 1)], "[1].utilization", "more than the 5"),
            )
        ),
    ],
)
def test_a_wrong_scoring_strategy_is_refused(
    strategy: dict[str, Any], path: str, problem: str
) -> None:
    """Weights are 1..100; a curve rises in 0..100 and scores 0..10."""
    error = refusal(NodeResourcesFitArgs, {"scoringStrategy": strategy})

    assert error.path == f"profiles[0].pluginConfig[2].args.scoringStrategy.{path}"
    assert problem in error.problem


@pytest.mark.parametrize(
    ("args_type", "fields", "path", "problem"),
    [
        (NodeResourcesFitArgs, {"ignoredResources": ["a b"]}, "ignoredResources[0]", "a b"),
        (
            NodeResourcesFitArgs,
            {"ignoredResourceGroups": ["example.com/a"]},
            "ignoredResourceGroups[0]",
            "before '/'",
        ),
        (
            NodeResourcesBalancedAllocationArgs,
            {"resources": [{"name": "cpu", "weight": 2}]},
            "resources[0].weight",
            "must be 1",
        ),
        (
            NodeResourcesBalancedAllocationArgs,
            {"resources": [{"name": "cpu"}, {"name": "cpu"}]},
            "resources[1].name",
            "unique",
        ),
        (InterPodAffinityArgs, {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight", "0..100"),
        (VolumeBindingArgs, {"bindTimeoutSeconds": -1}, "bindTimeoutSeconds", "at least 0"),
        (VolumeBindingArgs, {"shape": [point(9, 0), point(1, 0)]}, "shape[1].utilization", "9"),
        (
            DefaultPreemptionArgs,
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            "minCandidateNodesPercentage",
            "above 0 when minCandidateNodesAbsolute is 0",
        ),
        (
            DefaultPreemptionArgs,
            {"minCandidateNodesAbsolute": -1},
            "minCandidateNodesAbsolute",
            "at least 0",
        ),
        (DynamicResourcesArgs, {"filterTimeout": "-1s"}, "filterTimeout", "at least 0s"),
        (DynamicResourcesArgs, {"bindingTimeout": "999ms"}, "bindingTimeout", "at least 1s"),
        (DynamicResourcesArgs, {"bindingTimeout": "1 s"}, "bindingTimeout", "duration"),
        (NodeAffinityArgs, required({"key": "a"}), None, "required"),
        (NodeAffinityArgs, required({"key": "a", "operator": "in"}), None, "In"),
        (NodeAffinityArgs, required({"key": "a", "operator": "In"}), None, "at least one"),
        (
            NodeAffinityArgs,
            required({"key": "a", "operator": "Gt", "values": ["x"]}),
            None,
            "integer",
        ),
        (NodeAffinityArgs, required({"key": "a", "operator": "Exists", "x": 1}), None, "unknown"),
        (
            NodeAffinityArgs,
            {
                "addedAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {
                                "matchFields": [{"key": "metadata.name", "operator": "In"}]
                            },
                        }
                    ]
                }
            },
            None,
            "exactly one",
        ),
        (PodTopologySpreadArgs, {"defaultingType": "None"}, "defaultingType", "List, System"),
        (
            PodTopologySpreadArgs,
            {"defaultConstraints": [constraint()]},
            "defaultingType",
            "List when defaultConstraints are set",
        ),
        *(
            (
                PodTopologySpreadArgs,
                {"defaultingType": "List", "defaultConstraints": constraints},
                f"defaultConstraints[{len(constraints) - 1}]{path}",
                problem,
            )
            for constraints, path, problem in (
                ([constraint(maxSkew=0)], ".maxSkew", "at least 1"),
                ([constraint(topologyKey="")], ".topologyKey", "letter or digit"),
                ([constraint(whenUnsatisfiable="No")], ".whenUnsatisfiable", "ScheduleAnyway"),
                ([constraint(labelSelector={})], ".labelSelector", "must not be set"),
                ([constraint(minDomain=1)], ".minDomain", 'did you mean "minDomains"?'),
                ([constraint(), constraint(maxSkew=2)], "", "unique"),
            )
        ),
        (
            LoadAwareSchedulingArgs,
            {"nodeMetricExpirationSeconds": 0},
            "nodeMetricExpirationSeconds",
            "at least 1",
        ),
        (
            LoadAwareSchedulingArgs,
            {"resourceWeights": {"cpu": 0}},
            "resourceWeights.cpu",
            "1..100",
        ),
        (
            LoadAwareSchedulingArgs,
            {"resourceWeights": {"example.com/gpu": 1}},
            "estimatedScalingFactors[example.com/gpu]",
            "required",
        ),
        (
            LoadAwareSchedulingArgs,
            {"usageThresholds": {"cpu": 130}},
            "usageThresholds.cpu",
            "got 130",
        ),
        (
            LoadAwareSchedulingArgs,
            {"estimatedScalingFactors": {"cpu": 0}},
            "estimatedScalingFactors.cpu",
            "1..100",
        ),
        (
            LoadAwareSchedulingArgs,
            {"dominantResourceWeight": 101},
            "dominantResourceWeight",
            "0..100",
        ),
        (
            LoadAwareSchedulingArgs,
            {"aggregated": {"usageAggregationType": "p75"}},
            "aggregated.usageAggregationType",
            "avg, p50, p90, p95, p99",
        ),
        (
            LoadAwareSchedulingArgs,
            {"aggregated": {"scoreAggregatedDuration": "-5m"}},
            "aggregated.scoreAggregatedDuration",
            "at least 0s",
        ),
        (
            NodeNUMAResourceArgs,
            {"defaultCPUBindPolicy": "ConstrainedBurst"},
            "defaultCPUBindPolicy",
            'one of "", FullPCPUs, SpreadByPCPUs',
        ),
        (
            NodeNUMAResourceArgs,
            {"numaScoringStrategy": {"type": "RequestedToCapacityRatio"}},
            "numaScoringStrategy.type",
            "LeastAllocated, MostAllocated",
        ),
        (
            DeviceShareArgs,
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "a"}]}},
            "scoringStrategy.resources[0].weight",
            "required",
        ),
        (
            DeviceShareArgs,
            {"gpuShareUnsupportedModels": [{"vendor": "huawei"}]},
            "gpuShareUnsupportedModels[0].model",
            "required",
        ),
        (ReservationArgs, {"gcDurationSeconds": -1}, "gcDurationSeconds", "at least 0"),
        (ReservationArgs, {"ignoredResources": ["cpu"]}, "ignoredResources[0]", "extended"),
        (
            ReservationArgs,
            {"ignoredResourceGroups": ["kubernetes.io"]},
            "ignoredResourceGroups[0]",
            "not kubernetes.io",
        ),
        (CoschedulingArgs, {"defaultTimeout": "-1s"}, "defaultTimeout", "at least 0s"),
        (CoschedulingArgs, {"defaultTimeout": 600}, "defaultTimeout", "600"),
        (CoschedulingArgs, {"controllerWorkers": 0}, "controllerWorkers", "at least 1"),
        (ElasticQuotaArgs, {"delayEvictTime": "-1s"}, "delayEvictTime", "at least 0s"),
        (
            ElasticQuotaArgs,
            {"defaultQuotaGroupMax": {"cpu": "-1"}},
            "defaultQuotaGroupMax.cpu",
            "at least 0",
        ),
        (
            ElasticQuotaArgs,
            {"systemQuotaGroupMax": {"cpu": "many"}},
            "systemQuotaGroupMax.cpu",
            "quantity",
        ),
        (
            ElasticQuotaArgs,
            {"hookPlugins": [{"key": "a"}]},
            "hookPlugins[0].factoryKey",
            "required",
        ),
        (SchedulingHintArgs, {"maxHintNodes": 0}, "maxHintNodes", "at least 1"),
        (NodeResourcesFitPlusArgs, {"resources": ["cpu"]}, "resources", "an object"),
        (ScarceResourceAvoidanceArgs, {"resources": [1]}, "resources[0]", "a string"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_wrong(
    args_type: type[PluginArgs], fields: dict[str, Any], path: str | None, problem: str
) -> None:
    """The message names the field, what was found and what is accepted."""
    error = refusal(args_type, fields)

    assert error.source == "koord.yaml"
    if path is not None:
        assert error.path == f"profiles[0].pluginConfig[2].args.{path}"
    assert problem in error.problem


def test_load_aware_defaults_depend_on_each_other() -> None:
    """Thresholds if none are set, weights unless the dominant resource counts, factors by name."""
    plain = args(LoadAwareSchedulingArgs, {})
    dominant = args(
        LoadAwareSchedulingArgs,
        {"dominantResourceWeight": 1, "estimatedScalingFactors": {"cpu": 50}},
    )

    assert plain.usage_thresholds == {"cpu": 65, "memory": 95}
    assert plain.resource_weights == {"cpu": 1, "memory": 1}
    assert dominant.resource_weights == {}
    assert dominant.estimated_scaling_factors == {"cpu": 50, "memory": 70}


def test_plugins_of_koordinator_have_its_defaults() -> None:
    """The defaults equal koord-scheduler's for plugins without configuration."""
    numa, devices = NodeNUMAResourceArgs(), DeviceShareArgs()
    quota, reservation = ElasticQuotaArgs(), ReservationArgs()

    assert numa.default_cpu_bind_policy == "FullPCPUs"
    assert [each.name for each in numa.numa_scoring_strategy.resources] == ["cpu", "memory"]
    assert [each.name for each in devices.scoring_strategy.resources] == [
        "koordinator.sh/gpu-memory-ratio",
        "koordinator.sh/gpu-memory",
        "koordinator.sh/rdma",
        "koordinator.sh/fpga",
    ]
    assert devices.gpu_shared_resource_templates_config.matched_resources == (
        "huawei.com/npu-core",
    )
    assert quota.default_quota_group_max["cpu"] == Quantity.from_int(1844674407370955161)
    assert (reservation.gc_duration_seconds, reservation.resync_interval_seconds) == (86400, 60)
    assert CoschedulingArgs().default_timeout == Duration(seconds=600)
    assert SchedulingHintArgs().max_hint_nodes == 100


def test_names_that_go_spells_in_capitals() -> None:
    """NUMA, CPU, GPU and HTTPS keep their capitals in the middle of a name only."""
    numa = args(NodeNUMAResourceArgs, {"defaultCPUBindPolicy": ""})
    devices = args(DeviceShareArgs, {"disableDeviceNUMATopologyAlignment": True})

    assert numa.default_cpu_bind_policy == ""
    assert devices.disable_device_numa_topology_alignment
    assert (
        'did you mean "gcDurationSeconds"'
        in refusal(ReservationArgs, {"GCDurationSeconds": 1}).problem
    )


def test_zero_seconds_of_a_reservation_mean_the_default() -> None:
    """Go doesn't distinguish 0 from a missing field here, so the scheduler doesn't either."""
    zero = {"gcDurationSeconds": 0, "gcIntervalSeconds": 0, "resyncIntervalSeconds": 0}

    assert args(ReservationArgs, zero) == ReservationArgs()


RATIO_OF_OTHER_TYPE = {
    "scoringStrategy": {
        "type": "MostAllocated",
        "requestedToCapacityRatio": {"shape": [point(0, 0), point(100, 10)]},
    }
}


@pytest.mark.parametrize(
    ("args_type", "fields", "gates", "refused"),
    [
        (
            VolumeBindingArgs,
            {"shape": [point(0, 0), point(100, 10)]},
            (FeatureGates.parse("", V1_36), FeatureGates.parse("", V1_37)),
            ("shape", "must not be set: the feature gate StorageCapacityScoring is disabled"),
        ),
        (
            DynamicResourcesArgs,
            {"bindingTimeout": "600s"},
            (FeatureGates.parse("", V1_35), FeatureGates.parse("", V1_36)),
            (
                "bindingTimeout",
                "must not be set: the feature gate DRADeviceBindingConditions is disabled",
            ),
        ),
        (
            DynamicResourcesArgs,
            {"filterTimeout": "10s"},
            (
                FeatureGates.parse("DRASchedulerFilterTimeout=false", V1_37),
                FeatureGates.parse("", V1_37),
            ),
            (
                "filterTimeout",
                "must not be set: the feature gate DRASchedulerFilterTimeout is disabled",
            ),
        ),
        (
            NodeResourcesFitArgs,
            RATIO_OF_OTHER_TYPE,
            (FeatureGates.parse("", V1_36), FeatureGates.parse("", V1_35)),
            (
                "scoringStrategy.requestedToCapacityRatio",
                "must not be set when type is not RequestedToCapacityRatio, got type MostAllocated",
            ),
        ),
    ],
)
def test_an_argument_without_effect_is_refused(
    args_type: type[PluginArgs],
    fields: object,
    gates: tuple[FeatureGates, FeatureGates],
    refused: tuple[str, str],
) -> None:
    """An accepted argument would take effect once its feature is enabled."""
    decoded, (off, on) = args(args_type, fields), gates

    with pytest.raises(InputError) as caught:
        decoded.check_gates(off)
    assert (caught.value.path, caught.value.problem) == refused
    decoded.check_gates(on)
    args(args_type, {}).check_gates(off)
