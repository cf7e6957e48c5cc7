"""The compatibility level, and the feature gates of each release."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.api.kube_version import (
    NEWEST,
    OLDEST,
    SERVED,
    V1_35,
    V1_36,
    V1_37,
    KubeVersion,
    emulated_level,
    stated_level,
)
from koordinator.api.kubescheduler import FeatureGates, check_gate_names
from koordinator.api.kubescheduler.gates import OF_KUBERNETES
from koordinator.api.kubescheduler.kubernetes_gates import kubernetes_gates, served_levels
from koordinator.foundation.errors import InputError


@given(
    st.integers(0, 999), st.sampled_from(["{}", "v{}", "{}+", "v{}.2", "{}.0-rc.1", "v{}.4-eks.7"])
)
def test_versions_are_read_as_people_and_servers_write_them(minor: int, shape: str) -> None:
    version = KubeVersion.parse(shape.format(f"1.{minor}"))

    assert version.minor == minor
    assert KubeVersion.parse(str(version)) == version
    assert OLDEST <= version.served() <= NEWEST
    assert (version.served() == version) == (version in SERVED)


@pytest.mark.parametrize(
    "text", ["", "1", "1.", "2.37", "1.x", "1.37.2 and more", "1.37/2", "-1.37"]
)
def test_invalid_version_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match=r"must be a version of Kubernetes such as 1\.37"):
        KubeVersion.parse(text)


def test_a_level_that_is_named_must_be_served() -> None:
    """The API server may be of any release: then the nearest level is taken."""
    assert stated_level("v1.36.3") == V1_36
    assert KubeVersion(99).served() == V1_37
    assert KubeVersion(20).served() == OLDEST
    for text in ("1.32", "1.38"):
        with pytest.raises(InputError, match=r"is not between \[1.33, 1.37\]"):
            stated_level(text)


def test_the_flag_of_kube_scheduler_names_its_component_or_none() -> None:
    assert emulated_level("") is None
    assert emulated_level("1.36") == emulated_level("kube=1.36") == V1_36
    with pytest.raises(InputError, match="component not registered: wardle"):
        emulated_level("wardle=1.36")


#: Of the changelogs of 1.36 and 1.37: gates on by default at each level.
ON = {
    V1_35: "DRASchedulerFilterTimeout",
    V1_36: "DRASchedulerFilterTimeout DRADeviceTaints DRAPartitionableDevices "
    "DRAConsumableCapacity DRAExtendedResource DRADeviceBindingConditions",
    V1_37: "DRASchedulerFilterTimeout DRADeviceTaints DRAPartitionableDevices "
    "DRAConsumableCapacity DRAExtendedResource DRADeviceBindingConditions DRADeviceTaintRules "
    "DRAFractionalCapacityRange",
}


@pytest.mark.parametrize("level", ON)
def test_the_level_decides_which_gates_of_kubernetes_are_on(level: KubeVersion) -> None:
    gates = FeatureGates.parse("", level)

    assert {name for name in OF_KUBERNETES if name in gates} >= set(ON[level].split())
    assert (
        not {name for name in OF_KUBERNETES if name.startswith("DRA")} - set(ON[level].split())
        & gates.enabled
    )


def test_a_user_overrules_the_level() -> None:
    assert "DRADeviceTaints" in FeatureGates.parse("kube:DRADeviceTaints=true", V1_35)
    off = FeatureGates.parse("DRAPartitionableDevices=false", V1_37)
    assert "DRAPartitionableDevices" not in off


@pytest.mark.parametrize("level", SERVED)
def test_a_gate_that_kubernetes_never_had_is_refused(level: KubeVersion) -> None:
    for text in ("Bogus=true", "MultiQuotaTree=true,Bogus=false"):
        with pytest.raises(InputError, match="unrecognized feature gate: Bogus"):
            FeatureGates.parse(text, level)
        with pytest.raises(InputError, match="unrecognized feature gate: Bogus"):
            check_gate_names(text)


@settings(max_examples=examples(25))
@given(st.data())
def test_locked_gates_keep_their_default_and_others_change(data: st.DataObject) -> None:
    """As in kube-scheduler; a gate of another served release is only warned of."""
    level = data.draw(st.sampled_from(SERVED))
    every = sorted({name for each in SERVED for name in kubernetes_gates(each)})
    name = data.draw(st.sampled_from(every))
    value = data.draw(st.booleans())
    spec = kubernetes_gates(level).get(name)
    text = f"{name}={str(value).lower()}"
    if spec is not None and spec.is_locked and value != spec.is_on:
        with pytest.raises(InputError, match=f"{name} .*feature is locked to"):
            FeatureGates.parse(text, level)
        return
    if spec is not None and spec.is_on != value and _is_entangled(name, level):
        with suppress(InputError):  # it may need others, or others may need it
            FeatureGates.parse(text, level)
        return
    gates = FeatureGates.parse(text, level)
    warned = dict(gates.without_effect)
    assert (name in warned) == (spec is None or name not in OF_KUBERNETES)
    if spec is None:
        assert served_levels(name)
        assert str(level) in warned[name]
    elif name in OF_KUBERNETES:
        assert (name in gates) == value


@pytest.mark.parametrize(
    ("text", "level", "is_accepted"),
    [
        ("GangScheduling=true", V1_35, False),
        ("DRADeviceBindingConditions=true,DRAResourceClaimDeviceStatus=false", V1_35, False),
        (
            "DRADeviceBindingConditions=true,DRAResourceClaimDeviceStatus=false",
            KubeVersion(34),
            True,
        ),
        ("AuthorizeWithSelectors=false", KubeVersion(33), True),
        ("AtomicFIFO=false", V1_36, False),
        ("AtomicFIFO=false", V1_37, False),
    ],
)
def test_gates_without_what_they_need_are_refused_from_1_35_on(
    text: str, level: KubeVersion, *, is_accepted: bool
) -> None:
    """As by kube-scheduler, which did not check it before."""
    if is_accepted:
        FeatureGates.parse(text, level)
        return
    with pytest.raises(InputError, match="is enabled, but depends on features that are disabled"):
        FeatureGates.parse(text, level)


def _is_entangled(name: str, level: KubeVersion) -> bool:
    gates = kubernetes_gates(level)
    return bool(gates[name].needs) or any(name in spec.needs for spec in gates.values())


def test_gang_scheduling_is_part_of_generic_workload_from_1_37_on() -> None:
    gates = FeatureGates.parse("GenericWorkload=true,GangScheduling=true", V1_37)

    assert {"GenericWorkload", "GangScheduling"} <= gates.enabled
    assert [name for name, _ in gates.without_effect] == ["GangScheduling"]
    assert "GangScheduling" not in FeatureGates.parse("GenericWorkload=true", V1_36)
