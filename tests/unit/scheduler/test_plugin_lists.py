"""Plugin lists of a profile: defaults, multiPoint, and lists by extension point."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.api.kube_version import V1_35, V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler import (
    API_VERSION,
    EXTENSION_POINTS,
    KubeSchedulerConfiguration,
    Plugins,
    decode_configuration,
)
from koordinator.foundation.errors import BugError, InputError
from koordinator.scheduler.plugin_lists import STOCK_PLUGINS, merge, merge_profiles


def implements(points: str) -> frozenset[str]:
    return frozenset(points.split())


STOCK_POINTS = {
    "SchedulingGates": implements("preEnqueue"),
    "PrioritySort": implements("queueSort"),
    "NodeUnschedulable": implements("filter"),
    "NodeName": implements("filter"),
    "TaintToleration": implements("filter preScore score"),
    "NodeAffinity": implements("preFilter filter preScore score"),
    "NodePorts": implements("preFilter filter"),
    "NodeResourcesFit": implements("preFilter filter preScore score"),
    "VolumeRestrictions": implements("preFilter filter"),
    "NodeVolumeLimits": implements("preFilter filter"),
    "VolumeBinding": implements("preFilter filter reserve preBind preScore score"),
    "VolumeZone": implements("preFilter filter"),
    "PodTopologySpread": implements("preFilter filter preScore score"),
    "InterPodAffinity": implements("preFilter filter preScore score"),
    "DynamicResources": implements("preEnqueue preFilter filter postFilter score reserve preBind"),
    "DefaultPreemption": implements("preEnqueue postFilter"),
    "NodeResourcesBalancedAllocation": implements("preScore score"),
    "ImageLocality": implements("score"),
    "DefaultBinder": implements("bind"),
}
POINTS_OF = STOCK_POINTS | {
    "Reservation": implements("preFilter filter postFilter preScore score reserve preBind bind"),
    "LoadAwareScheduling": implements("preFilter filter score reserve"),
    "DefaultPreBind": implements("preBind"),
    "OtherSort": implements("queueSort"),
}


def configuration(*profiles: dict[str, Any]) -> KubeSchedulerConfiguration:
    header = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"}
    return decode_configuration(header | {"profiles": list(profiles)}, "koord.yaml")


def plugins(**sets: Any) -> Plugins | None:
    return configuration({"plugins": sets}).profiles[0].plugins


def named(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def lists(**sets: Any) -> dict[str, list[tuple[str, int]]]:
    return merge(plugins(**sets), STOCK_PLUGINS, POINTS_OF)


def names(**sets: Any) -> dict[str, list[str]]:
    return {point: [name for name, _ in plugins] for point, plugins in lists(**sets).items()}


def refusal(**sets: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        lists(**sets)
    return caught.value


def test_without_a_plugins_section_the_defaults_run() -> None:
    """Every default plugin at every point that it implements, in the default order."""
    merged = merge(None, STOCK_PLUGINS, STOCK_POINTS)

    assert tuple(merged) == EXTENSION_POINTS
    for point in EXTENSION_POINTS:
        expected = [name for name, _ in STOCK_PLUGINS if point in STOCK_POINTS[name]]
        assert [name for name, _ in merged[point]] == expected
    assert merged["score"] == [
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
        ("VolumeBinding", 1),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("DynamicResources", 2),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
    ]


def test_the_documented_example_of_koordinator() -> None:
    """Koordinator's plugins come after the stock ones, unless ``*`` is disabled at the point."""
    merged = lists(
        preFilter={"enabled": named("Reservation")},
        filter={"enabled": named("LoadAwareScheduling", "Reservation")},
        postFilter={"disabled": named("*"), "enabled": named("Reservation")},
        preScore={"enabled": named("Reservation")},
        score={
            "enabled": [
                {"name": "LoadAwareScheduling", "weight": 1},
                {"name": "Reservation", "weight": 5000},
            ]
        },
        reserve={"enabled": named("LoadAwareScheduling", "Reservation")},
        preBind={"enabled": named("Reservation")},
        bind={"disabled": named("*"), "enabled": named("Reservation", "DefaultBinder")},
    )
    stock = merge(None, STOCK_PLUGINS, POINTS_OF)

    load, reservation = ("LoadAwareScheduling", 1), ("Reservation", 1)
    assert merged == stock | {
        "preFilter": [*stock["preFilter"], reservation],
        "filter": [*stock["filter"], load, reservation],
        "postFilter": [reservation],
        "preScore": [*stock["preScore"], reservation],
        "score": [*stock["score"], load, ("Reservation", 5000)],
        "reserve": [*stock["reserve"], load, reservation],
        "preBind": [*stock["preBind"], reservation, ("DefaultPreBind", 1)],
        "bind": [reservation, ("DefaultBinder", 1)],
    }


def test_a_default_that_is_enabled_at_a_point_runs_first_there() -> None:
    """In the order of the point and with its weight; a plugin not in multiPoint runs last."""
    enabled = [
        {"name": "Reservation", "weight": 9},
        {"name": "ImageLocality", "weight": 8},
        {"name": "TaintToleration"},
    ]
    merged = lists(score={"enabled": enabled})

    assert merged["score"][:3] == [
        ("ImageLocality", 8),
        ("TaintToleration", 1),
        ("NodeAffinity", 2),
    ]
    assert merged["score"][-1] == ("Reservation", 9)
    assert merged["filter"][2] == ("TaintToleration", 1)


def test_a_default_that_is_enabled_in_multi_point_keeps_its_place_and_takes_the_weight() -> None:
    """A missing weight is 1 then, not the default's."""
    enabled = [{"name": "ImageLocality", "weight": 8}, {"name": "TaintToleration"}]
    merged = lists(multiPoint={"enabled": enabled})

    assert merged["score"][0] == ("TaintToleration", 1)
    assert merged["score"][-1] == ("ImageLocality", 8)


def test_a_plugin_of_multi_point_runs_wherever_it_can_after_the_defaults() -> None:
    """Enabling a plugin by multiPoint enables each extension point that it implements."""
    merged = names(multiPoint={"enabled": named("Reservation")})

    assert merged["filter"][-1] == merged["score"][-1] == merged["bind"][-1] == "Reservation"
    assert "Reservation" not in merged["permit"]


def test_the_weight_at_score_wins_over_that_of_multi_point() -> None:
    """The more specific setting counts."""
    merged = lists(
        multiPoint={"enabled": [{"name": "Reservation", "weight": 3}]},
        score={"enabled": [{"name": "Reservation", "weight": 5}]},
    )

    assert dict(merged["score"])["Reservation"] == 5


def test_disabling_in_multi_point_takes_a_default_away_everywhere() -> None:
    """A name disables one default, ``*`` all; plugins enabled at the same time stay."""
    one = names(multiPoint={"disabled": named("NodeAffinity")})
    everything = names(
        multiPoint={"disabled": named("*"), "enabled": named("PrioritySort", "DefaultBinder")},
        filter={"enabled": named("NodeName")},
    )

    assert all("NodeAffinity" not in plugins for plugins in one.values())
    assert everything["filter"] == ["NodeName"]
    assert everything["queueSort"] == ["PrioritySort"]
    assert not everything["score"]


def test_a_default_that_is_disabled_and_enabled_in_multi_point_moves_to_the_end() -> None:
    """Disabling and enabling defaults reorders them."""
    moved = named("NodeName")

    assert names(multiPoint={"disabled": moved, "enabled": moved})["filter"][-1] == "NodeName"


def test_disabling_at_a_point_leaves_the_other_points_alone() -> None:
    """A plugin that is also enabled there is treated like one that is not in multiPoint."""
    merged = names(
        filter={"disabled": named("NodeAffinity")},
        score={"disabled": named("NodeAffinity"), "enabled": named("NodeAffinity")},
    )

    assert "NodeAffinity" not in merged["filter"]
    assert "NodeAffinity" in merged["preFilter"]
    assert merged["score"][-1] == "NodeAffinity"


def test_disabling_a_plugin_of_another_version_is_allowed() -> None:
    """Files outlive plugins: kube-scheduler accepts this, too."""
    disabled = {"disabled": named("CinderLimits")}

    assert lists(filter=disabled, multiPoint=disabled) == lists()


@pytest.mark.parametrize("disabled", ["*", "DefaultPreBind"])
def test_default_pre_bind_is_added_unless_it_is_disabled(disabled: str) -> None:
    """DefaultPreBind writes the changes of other preBind plugins, so profiles rarely omit it."""
    enabled = named("DefaultPreBind", "Reservation")

    assert names()["preBind"][-1] == "DefaultPreBind"
    assert names(preBind={"enabled": enabled})["preBind"][-2:] == ["DefaultPreBind", "Reservation"]
    assert "DefaultPreBind" not in names(preBind={"disabled": named(disabled)})["preBind"]


def test_an_unknown_plugin_is_refused_with_the_known_ones_of_the_point() -> None:
    """The full message, as a user sees it."""
    error = refusal(bind={"enabled": named("Reservation", "DefaultBinding")})

    assert str(error) == (
        "plugins.bind.enabled[1].name: must be one of DefaultBinder, Reservation, "
        'got DefaultBinding; did you mean "DefaultBinder"?'
    )


def test_a_plugin_at_a_point_that_it_does_not_implement_is_refused() -> None:
    """The full message, as a user sees it."""
    assert str(refusal(permit={"enabled": named("NodePorts")})) == (
        "plugins.permit.enabled[0].name: plugin NodePorts does not implement permit; "
        "must be one of filter, preFilter"
    )


@pytest.mark.parametrize(
    ("sets", "path", "problem"),
    [
        (
            {"multiPoint": {"enabled": named("Nothing")}},
            "plugins.multiPoint.enabled[0].name",
            "must be one of DefaultBinder",
        ),
        (
            {"filter": {"enabled": named("NodeName", "NodeName")}},
            "plugins.filter.enabled[1].name",
            "twice",
        ),
        (
            {"multiPoint": {"enabled": named("NodeName", "NodeName")}},
            "plugins.multiPoint.enabled[1].name",
            "twice",
        ),
        (
            {"queueSort": {"enabled": named("OtherSort")}},
            "plugins.queueSort",
            "must enable exactly one of OtherSort, PrioritySort, got OtherSort, PrioritySort",
        ),
        ({"queueSort": {"disabled": named("*")}}, "plugins.queueSort", "got none"),
        (
            {"bind": {"disabled": named("*")}},
            "plugins.bind",
            "must enable at least one of DefaultBinder, Reservation",
        ),
    ],
)
def test_lists_that_cannot_run_are_refused(sets: dict[str, Any], path: str, problem: str) -> None:
    """The message names the list and what is accepted there."""
    error = refusal(**sets)

    assert error.path == path
    assert problem in error.problem


PLACEMENTS = {
    "TopologyPlacementGenerator": implements("placementGenerate"),
    "RackGenerator": implements("placementGenerate"),
    "PodGroupPodsCount": implements("placementScore"),
}


@pytest.mark.parametrize(
    ("point", "level", "newer"),
    [
        ("placementGenerate", V1_35, V1_36),
        ("placementScore", V1_35, V1_36),
        ("podGroupPostFilter", V1_36, V1_37),
    ],
)
def test_an_extension_point_of_a_later_release_is_refused(
    point: str, level: KubeVersion, newer: KubeVersion
) -> None:
    """As by the strict decoding of kube-scheduler; the later release takes it."""
    decoded = configuration({"plugins": {point: {"disabled": named("*")}}})

    with pytest.raises(InputError) as caught:
        merge_profiles(decoded, STOCK_PLUGINS, POINTS_OF, level)
    assert caught.value.path == f"profiles[0].plugins.{point}"
    assert caught.value.problem == (
        f"unknown field: Kubernetes {level} has no such extension point, {newer} has"
    )
    assert merge_profiles(decoded, STOCK_PLUGINS, POINTS_OF, newer)


def test_weights_count_at_placement_score() -> None:
    """As at score; elsewhere they are 1."""
    enabled = {"enabled": [{"name": "PodGroupPodsCount", "weight": 7}]}
    merged = merge(plugins(placementScore=enabled), STOCK_PLUGINS, POINTS_OF | PLACEMENTS)

    assert merged["placementScore"] == [("PodGroupPodsCount", 7)]


def test_a_second_generator_of_placements_is_refused() -> None:
    both = {"enabled": named("TopologyPlacementGenerator", "RackGenerator")}

    with pytest.raises(InputError) as caught:
        merge(plugins(placementGenerate=both), STOCK_PLUGINS, POINTS_OF | PLACEMENTS)
    assert str(caught.value) == (
        "plugins.placementGenerate: must enable at most one plugin, "
        "got RackGenerator, TopologyPlacementGenerator"
    )


def test_defaults_must_exist() -> None:
    """The defaults are ours, so a wrong one is our mistake."""
    with pytest.raises(BugError, match="Nothing"):
        merge(None, [("Nothing", 1)], POINTS_OF)


def test_errors_name_the_profile() -> None:
    """The path starts at the top of the file."""
    decoded = configuration(
        {"schedulerName": "a"},
        {"schedulerName": "b", "plugins": {"filter": {"enabled": named("X")}}},
    )

    with pytest.raises(InputError) as caught:
        merge_profiles(decoded, STOCK_PLUGINS, POINTS_OF)

    assert caught.value.path == "profiles[1].plugins.filter.enabled[0].name"


def test_all_profiles_sort_the_queue_alike() -> None:
    """Profiles share one queue: plugin and arguments must be equal, in any spelling."""
    other = {"queueSort": {"disabled": named("*"), "enabled": named("OtherSort")}}
    same = {"queueSort": {"disabled": named("*"), "enabled": named("PrioritySort")}}
    config = [{"name": "PrioritySort", "args": {"a": 1}}]
    first = {"schedulerName": "a"}

    alike = configuration(first, {"schedulerName": "b", "plugins": same})
    assert len(merge_profiles(alike, STOCK_PLUGINS, POINTS_OF)) == 2
    for difference in ({"plugins": other}, {"pluginConfig": config}):
        decoded = configuration(first, {"schedulerName": "b"} | difference)
        with pytest.raises(InputError, match=r"profiles\[1\].plugins.queueSort"):
            merge_profiles(decoded, STOCK_PLUGINS, POINTS_OF)


@settings(max_examples=examples(20))
@given(
    enabled=st.lists(st.sampled_from(sorted(POINTS_OF)), unique=True),
    disabled=st.lists(st.sampled_from([*sorted(POINTS_OF), "*"]), unique=True),
)
def test_a_list_has_each_plugin_once_and_all_that_are_enabled_there(
    enabled: list[str], disabled: list[str]
) -> None:
    """Enabled wins over disabled, and nothing else survives ``*``."""
    here = [name for name in enabled if "filter" in POINTS_OF[name]]
    merged = names(filter={"enabled": named(*here), "disabled": named(*disabled)})["filter"]

    assert len(merged) == len(set(merged))
    assert set(here) <= set(merged)
    if "*" in disabled:
        assert merged == here
    assert not set(disabled) & set(merged) - set(here)
