"""Environment and mounts of containers with GPUs, and rejected allocations."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import LAYOUT

from koordinator.api.codec import decode
from koordinator.api.pod import Container, Pod
from koordinator.foundation.errors import InputError
from koordinator.koordlet.adjustments import ContainerAdjustment, ContainerMount
from koordinator.koordlet.hooks.devices import (
    HamiCoreSettings,
    gpu_adjustment,
    region_folder,
)
from koordinator.koordlet.view.pods import ContainerCreation, ContainerView, pod_view

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
PROVIDER = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
PLAIN, WATCHED = HamiCoreSettings(), HamiCoreSettings(keeps_regions=True)
PART = {
    "koordinator.sh/gpu-core": "25",
    "koordinator.sh/gpu-memory": "10Gi",
    "koordinator.sh/gpu-memory-ratio": "25",
}
LIBRARY = "/usr/local/vgpu/libvgpu.so"
LOCK = "/tmp/vgpulock"  # noqa: S108 -- where HAMi-core has it


def creation(
    allocated: Any,
    labels: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    name: str = "main",
    uid: str = "0a-1b",
) -> ContainerCreation:
    """Return a container of a pod that the runtime starts, with an annotation, JSON or text."""
    text = allocated if isinstance(allocated, str) else json.dumps(allocated)
    pod = decode(
        {
            "metadata": {
                "name": "p",
                "namespace": "default",
                "uid": uid,
                "labels": PROVIDER if labels is None else labels,
                "annotations": {ALLOCATED: text} if text else {},
            },
            "spec": {"containers": []},
        },
        Pod,
    )
    container = ContainerView(name, "containerd://1", "folder", Container(name=name))
    return ContainerCreation(pod_view(pod, LAYOUT), container, env or {})


def gpus(*minors: int, **resources: str) -> dict[str, Any]:
    named = {f"koordinator.sh/{key}": value for key, value in resources.items()}
    return {"gpu": [{"minor": minor, "resources": PART | named} for minor in minors]}


def test_a_container_sees_the_gpus_of_its_pod() -> None:
    """Whole ones, or shared without a library: nothing but their numbers."""
    whole = gpus(3, 5, **{"gpu-memory-ratio": "100"})
    expected = ContainerAdjustment(env={"NVIDIA_VISIBLE_DEVICES": "3,5"})

    assert gpu_adjustment(creation(whole), WATCHED) == expected
    assert gpu_adjustment(creation(gpus(3, 5), labels={}), WATCHED) == expected
    other = {"koordinator.sh/gpu-isolation-provider": "another"}
    assert gpu_adjustment(creation(gpus(3, 5), labels=other), WATCHED) == expected


@pytest.mark.parametrize("spelling", ["hami-core", "HAMI-CORE"])
def test_hami_core_is_accepted_in_upper_or_lower_case(spelling: str) -> None:
    """The release note of v1.6 writes hami-core."""
    labels = {"koordinator.sh/gpu-isolation-provider": spelling}

    result = gpu_adjustment(creation(gpus(3), labels=labels), WATCHED)

    assert result == gpu_adjustment(creation(gpus(3)), WATCHED)


@pytest.mark.parametrize("allocated", ["", {}, {"rdma": [{"minor": 0}]}, {"gpu": []}])
def test_container_without_gpus_is_not_changed(allocated: Any) -> None:
    """Labels of the container have no influence."""
    assert gpu_adjustment(creation(allocated), WATCHED).is_empty
    assert region_folder(creation(allocated), WATCHED) is None


def test_the_library_limits_a_share() -> None:
    """Limits of the first GPU, the library loaded before the program, its lock."""
    result = gpu_adjustment(creation(gpus(3)), PLAIN)

    assert result.env == {
        "NVIDIA_VISIBLE_DEVICES": "3",
        "CUDA_DEVICE_MEMORY_LIMIT": str(10 << 30),
        "CUDA_DEVICE_SM_LIMIT": "25",
        "LD_PRELOAD": LIBRARY,
    }
    assert result.mounts == (
        ContainerMount(LIBRARY, LIBRARY, ("rbind", "ro")),
        ContainerMount(LOCK, LOCK),
    )
    assert region_folder(creation(gpus(3)), PLAIN) is None


def test_a_monitored_share_has_a_folder_of_its_own() -> None:
    """Mounted before the library, which lies in it; only the library can't be written."""
    result = gpu_adjustment(creation(gpus(3)), WATCHED)

    assert result.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == "/usr/local/vgpu/0a-1b_main.cache"
    assert [(it.destination, it.source) for it in result.mounts] == [
        ("/usr/local/vgpu", "/usr/local/vgpu/containers/0a-1b_main"),
        (LIBRARY, LIBRARY),
        (LOCK, LOCK),
    ]
    assert region_folder(creation(gpus(3)), WATCHED) == "0a-1b_main"


def test_a_share_without_cores_is_limited_in_memory_only() -> None:
    """As for a pod that requests memory only."""
    without = {key: value for key, value in PART.items() if "core" not in key}
    result = gpu_adjustment(creation({"gpu": [{"minor": 0, "resources": without}]}), PLAIN)

    assert "CUDA_DEVICE_SM_LIMIT" not in result.env


def test_own_preload_of_a_container_is_kept() -> None:
    """After the library; the original leaves it out."""
    result = gpu_adjustment(creation(gpus(0), env={"LD_PRELOAD": "/opt/a.so /opt/b.so"}), PLAIN)

    assert result.env["LD_PRELOAD"] == f"{LIBRARY}:/opt/a.so /opt/b.so"


def test_limits_of_single_gpus_in_the_spec_do_not_lift_the_limit() -> None:
    """The library prefers them over the common limit; other variables belong to the container."""
    own = {"CUDA_DEVICE_MEMORY_LIMIT_0": "80g", "CUDA_DEVICE_SM_LIMIT_3": "0", "X_0": "1"}
    result = gpu_adjustment(creation(gpus(0), env=own), PLAIN)

    assert result.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == str(10 << 30)
    assert result.env["CUDA_DEVICE_SM_LIMIT_3"] == "25"
    assert "X_0" not in result.env


@pytest.mark.parametrize(
    ("allocated", "problem"),
    [
        ("{", "device-allocated"),
        ({"gpu": [{"minor": -1}]}, r"gpu\[0\].minor: .*got -1"),
        ({"gpu": [{"minor": 0}]}, r"gpu-memory-ratio\]: .*got nothing"),
        (gpus(0, **{"gpu-memory": "0"}), r"gpu-memory\]: .*got 0"),
        (gpus(0, **{"gpu-memory": "-1Gi"}), r"gpu-memory\]: .*got -1Gi"),
        (gpus(0, **{"gpu-core": "101"}), r"gpu-core\]: .*got 101"),
        (gpus(0, **{"gpu-memory-ratio": "0"}), r"gpu-memory-ratio\]: .*got 0"),
        (gpus(*range(200)), "at most 128 GPUs, got 200"),
    ],
)
def test_an_allocation_that_would_not_limit_is_refused(allocated: Any, problem: str) -> None:
    """With the path in the annotation: 0 is no limit to the library."""
    with pytest.raises(InputError, match=problem):
        gpu_adjustment(creation(allocated), WATCHED)


@pytest.mark.parametrize(
    ("uid", "name"),
    [("..", "main"), ("0a_evil", "main"), ("0a", "../../etc"), ("0a", "a/b"), ("0a", "n" * 300)],
)
def test_no_name_leads_out_of_the_folder(uid: str, name: str) -> None:
    """Names of pods and of containers are checked for path components."""
    with pytest.raises(InputError, match=r"metadata.uid|containers\[\].name"):
        gpu_adjustment(creation(gpus(0), uid=uid, name=name), WATCHED)


@pytest.mark.parametrize(
    "path", ["libvgpu.so", "/usr/../etc/x.so", "/lib.so", "", "/a//b.so", "/usr/local/vgpu/"]
)
def test_a_library_must_have_a_path_that_can_be_mounted(path: str) -> None:
    """Absolute, plain, and not in the root of the container."""
    with pytest.raises(InputError, match="hami-core-library-directory-path"):
        HamiCoreSettings(path)


def test_a_library_elsewhere_takes_its_folders_along() -> None:
    """One setting moves all of them."""
    result = gpu_adjustment(
        creation(gpus(0)), HamiCoreSettings("/opt/h/lib.so", keeps_regions=True)
    )

    assert [it.source for it in result.mounts[:2]] == [
        "/opt/h/containers/0a-1b_main",
        "/opt/h/lib.so",
    ]
    assert result.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == "/opt/h/0a-1b_main.cache"


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(["gpu", "rdma", "fpga", "x"]),
        st.lists(
            st.recursive(
                st.none() | st.integers() | st.text(max_size=8),
                lambda inner: st.dictionaries(
                    st.sampled_from(["minor", "id", "resources", *PART]), inner, max_size=3
                ),
                max_leaves=6,
            ),
            max_size=2,
        ),
        max_size=2,
    ),
    st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=3),
)
def test_no_annotation_leads_to_another_mount(allocated: Any, env: dict[str, str]) -> None:
    """An answer or a refusal; sources are the library's folder and the lock."""
    try:
        result = gpu_adjustment(creation(allocated, env=env), WATCHED)
    except InputError:
        return
    for mount in result.mounts:
        assert mount.source in {
            LIBRARY,
            LOCK,
            "/usr/local/vgpu/containers/0a-1b_main",
        }
