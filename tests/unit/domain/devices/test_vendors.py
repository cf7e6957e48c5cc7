"""Marks of pods and nodes for device plugins.

Cases of koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter_test.go among them.
"""

import datetime as dt
import re

import pytest
from tests.unit.domain.devices.machines import (
    CORE,
    GIB,
    MEMORY,
    MODEL,
    RATIO,
    SHARED,
    VENDOR,
    pod_request,
)

from koordinator.api.annotations.devices import (
    DeviceAllocation,
    DeviceAllocationExtension,
    DeviceAllocations,
)
from koordinator.domain.devices.allocation import DeviceShortage
from koordinator.domain.devices.pod_request import sharing_shortage
from koordinator.domain.devices.vendor import AdaptationError
from koordinator.domain.devices.vendors import (
    VENDORS,
    Adaptation,
    adaptation,
    is_locked,
    lock_text,
    locked,
    vendor_named,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

NOW_NS = 1_700_000_000_000_000_001
STAMP = {"scheduling.koordinator.sh/bind-timestamp": str(NOW_NS)}
PROVIDER = "koordinator.sh/gpu-isolation-provider"


def device(minor: int, *, template: str = "", **amounts: str) -> DeviceAllocation:
    """Return what was taken of a device; amounts are named without ``koordinator.sh/gpu-``."""
    resources = {f"koordinator.sh/gpu-{n}": Quantity.parse(each) for n, each in amounts.items()}
    extension = DeviceAllocationExtension(gpu_shared_resource_template=template)
    return DeviceAllocation(
        minor=minor,
        resources=resources,
        id=f"GPU-{minor}",
        extension=extension if template else None,
    )


def marks(
    *gpus: DeviceAllocation, vendor: str = "", model: str = "", provider: str = ""
) -> Adaptation:
    return adaptation(
        {"gpu": gpus} if gpus else {"rdma": (device(1),)},
        node_name="n1",
        device_labels={VENDOR: vendor, MODEL: model},
        pod_labels={PROVIDER: provider},
        now_ns=NOW_NS,
    )


def test_every_pod_with_devices_has_the_time_of_its_bind() -> None:
    """Pods with GPUs have their minors as well, of every vendor."""
    assert marks() == Adaptation(STAMP, {})
    minors = {"scheduling.koordinator.sh/gpu-minors": "2,0"}
    for vendor in ("", "nvidia", "kunlun"):
        assert marks(device(2), device(0), vendor=vendor) == Adaptation(STAMP | minors, {})


@pytest.mark.parametrize(
    ("provider", "labels"),
    [
        ("HAMi-core", {"hami.io/vgpu-node": "n1"}),
        ("hami-core", {"hami.io/vgpu-node": "n1"}),
        ("another", {}),
        ("", {}),
    ],
)
def test_hami_finds_its_pods_by_label(provider: str, labels: dict[str, str]) -> None:
    """In upper or lower case."""
    assert marks(device(2), provider=provider).labels == labels


@pytest.mark.parametrize(
    ("gpus", "model", "key", "value"),
    [
        ([device(2), device(3)], "Ascend-910B3", "huawei.com/npu-core", "2,3"),
        ([device(1, template="vir05")], "Ascend-910B3", "huawei.com/npu-core", "1-vir05"),
        (
            [device(2), device(0)],
            "Ascend-310P3-300I-DUO",
            "huawei.com/Ascend310P",
            "Ascend310P-2,Ascend310P-0",
        ),
    ],
)
def test_huawei_annotations_have_the_cards_or_the_template(
    gpus: list[DeviceAllocation], model: str, key: str, value: str
) -> None:
    """Under a name that depends on the model, with the time."""
    result = marks(*gpus, vendor="huawei", model=model)

    assert result.annotations["predicate-time"] == str(NOW_NS)
    assert result.annotations[key] == value
    assert len(result.annotations) == 4
    assert result.node_lock == ""


def test_cambricon_annotations_have_core_and_memory_of_one_card() -> None:
    """Memory in units of 256 MiB; the node is locked."""
    result = marks(device(3, core="25", memory="6Gi"), vendor="cambricon")

    assert result.annotations["CAMBRICON_DSMLU_ASSIGHED"] == "false"
    assert result.annotations["CAMBRICON_DSMLU_PROFILE"] == "3_25_24"
    assert result.node_lock == "cambricon.com/dsmlu.lock"


def test_metax_annotations_have_core_and_memory_of_each_card() -> None:
    """Memory in MiB; the node is locked."""
    result = marks(
        device(1, core="100", memory="64Gi"), device(0, core="50", memory="1Mi"), vendor="metax"
    )

    assert result.annotations["metax-tech.com/gpu-devices-allocated"] == (
        '[[{"uuid":"GPU-1","compute":100,"vRam":65536},{"uuid":"GPU-0","compute":50,"vRam":1}]]'
    )
    assert result.node_lock == "hami.io/mutex.lock"


@pytest.mark.parametrize(
    ("vendor", "gpus", "problem"),
    [
        (
            "cambricon",
            [device(0), device(1)],
            "multiple gpu share is not supported on device side",
        ),
        ("cambricon", [device(0, memory="1Gi")], "gpu core resource is required"),
        (
            "cambricon",
            [device(0, core="5", memory="255Mi")],
            "gpu memory must not be less than 268435456 bytes",
        ),
        ("metax", [device(0, memory="1Gi")], "gpu core resource is required"),
        ("metax", [device(0, core="5")], "gpu memory must not be less than 1048576 bytes"),
    ],
)
def test_allocations_unsupported_by_the_device_plugin_are_refused(
    vendor: str, gpus: list[DeviceAllocation], problem: str
) -> None:
    """The pod can't be bound there."""
    with pytest.raises(AdaptationError, match=problem):
        marks(*gpus, vendor=vendor)


def test_vendors_are_found_by_their_labels() -> None:
    """No two have the same; who is unknown has nothing of his own."""
    labels = [label for vendor in VENDORS for label in vendor.labels]

    assert len(labels) == len(set(labels))
    assert vendor_named("metax").node_lock
    assert vendor_named("kunlun").adapt is None


# -- node locks ------------------------------------------------------------------------------

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def test_a_lock_names_time_and_pod() -> None:
    """In universal time."""
    east = NOON.astimezone(dt.timezone(dt.timedelta(hours=8)))

    assert lock_text(east, "team-a", "p") == "2024-05-01T12:00:00Z,team-a,p"
    assert locked("n1") == 'node "n1" has been locked'


@pytest.mark.parametrize(
    ("since", "exists", "locked"),
    [
        ("2024-05-01T11:55:00Z", True, True),
        ("2024-05-01T11:54:59Z", True, False),
        ("2024-05-01T11:59:00Z", False, False),
        ("2024-05-01T19:59:00+08:00", True, True),
    ],
)
def test_a_lock_holds_five_minutes_while_its_pod_exists(
    since: str, exists: bool, locked: bool
) -> None:
    """The time zone of the writer has no influence."""
    known = {("team-a", "p")} if exists else set()

    assert is_locked(f"{since},team-a,p", NOON, lambda *pod: pod in known) is locked


@pytest.mark.parametrize("text", ["", "2024-05-01T11:59:00Z,p", "noon,a,p", "2024-05-01,a,p"])
def test_text_without_a_valid_lock_is_an_error(text: str) -> None:
    """The error contains the text."""
    with pytest.raises(InputError, match=re.escape(repr(text))):
        is_locked(text, NOON, lambda *_: True)


# -- sharing ---------------------------------------------------------------------------------

T4 = {VENDOR: "nvidia", MODEL: "T4"}
UNSUPPORTED = {("nvidia", "T4"), ("huawei", "Ascend-910")}


def shortage(
    requests: dict[str, int], pod: dict[str, str], node: dict[str, str]
) -> DeviceShortage | None:
    return sharing_shortage(pod_request(requests), pod, node, UNSUPPORTED)


def test_a_share_needs_the_isolation_that_the_pod_names() -> None:
    """Whole GPUs don't, nor does a pod that names none."""
    isolated = {PROVIDER: "HAMi-core"}
    missing = DeviceShortage("GPUIsolationProviderHAMICore not found on the node", resolvable=False)

    assert shortage({RATIO: 50}, isolated, {}) == missing
    assert shortage({RATIO: 50}, isolated, isolated) is None
    assert shortage({RATIO: 50}, {PROVIDER: "hami-core"}, isolated) is None
    assert shortage({RATIO: 50}, {PROVIDER: "another"}, isolated) == missing
    assert shortage({RATIO: 50}, {}, isolated) is None
    assert shortage({RATIO: 100}, isolated, {}) is None


def test_some_models_are_not_shared() -> None:
    """By vendor and model together."""
    refused = DeviceShortage(
        'model "T4" of vendor "nvidia" does not support GPU Share', resolvable=False
    )

    assert shortage({SHARED: 1, CORE: 5, MEMORY: GIB}, {}, T4) == refused
    assert shortage({SHARED: 1, CORE: 5, MEMORY: GIB}, {}, {**T4, VENDOR: "huawei"}) is None
    assert shortage({RATIO: 200}, {}, T4) is None
    assert shortage({"koordinator.sh/rdma": 1}, {}, T4) is None


def test_allocations_of_other_types_need_no_vendor() -> None:
    """Only GPUs have vendors that matter."""
    others: DeviceAllocations = {"rdma": (device(1),), "gpu": ()}
    result = adaptation(
        others, node_name="n", device_labels={VENDOR: "cambricon"}, pod_labels={}, now_ns=NOW_NS
    )

    assert result == Adaptation(STAMP, {})
