"""Names that a release of Koordinator, Kubernetes or the descheduler has, by scope."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from docs.since.golang import GoSources
from docs.since.repositories import STAGED, Release

#: Names with a flag: true for a field whose own fields are not in the sources.
Found = Mapping[str, bool]
#: Looks up the names in a release; the text is what the group of the scope's pattern has matched.
_Query = Callable[[Release, str], Found]

_OF_OBJECTS: Final = ("apiVersion", "kind", "metadata")
_FIRST: Final = "0.1"  # the first release of Koordinator and of the descheduler
#: Programs of Koordinator by the command here.
_COMMANDS: Final[Mapping[str, str]] = {
    "koord scheduler": "koord-scheduler",
    "koord manager": "koord-manager",
    "koord descheduler": "koord-descheduler",
    "koord koordlet": "koordlet",
    "koord device-daemon": "koord-device-daemon",
}
#: Folders of a component of Koordinator below ``pkg``, beside those that all components share.
_FOLDERS: Final[Mapping[str, Sequence[str]]] = {
    "koord-scheduler": ("scheduler",),
    "koord-manager": ("webhook", "controller", "slo-controller", "quota-controller"),
    "koord-descheduler": ("descheduler",),
    "koordlet": ("koordlet",),
    "koord-device-daemon": ("device-daemon",),
}
_SHARED: Final = ("pkg/client", "pkg/features", "pkg/util")
#: Structs of Koordinator's annotations.
_FORMATS: Final[Mapping[str, str]] = {
    "gang.scheduling.koordinator.sh/network-topology-spec": "NetworkTopologySpec",
    "internal.scheduling.koordinator.sh/scheduling-hint": "SchedulingHint",
    "koordinator.sh/blkioQOS": "BlkIOQOS",
    "koordinator.sh/cpuBurst": "CPUBurstConfig",
    "koordinator.sh/cpuQOS": "CPUQOSCfg",
    "koordinator.sh/memoryQOS": "PodMemoryQOSConfig",
    "koordinator.sh/networkQOS": "NetworkQOS",
    "kubelet.koordinator.sh/cpu-manager-policy": "KubeletCPUManagerPolicy",
    "node.koordinator.sh/colocation-strategy": "ColocationStrategy",
    "node.koordinator.sh/cpu-basic-info": "CPUBasicInfo",
    "node.koordinator.sh/cpu-topology": "CPUTopology",
    "node.koordinator.sh/extended-resource-spec": "ExtendedResourceSpec",
    "node.koordinator.sh/originExtendedAllocatable": "OriginAllocatable",
    "node.koordinator.sh/resctrl": "ResctrlConfig",
    "node.koordinator.sh/reservation": "NodeReservation",
    "node.koordinator.sh/system-qos-resource": "SystemQOSResource",
    "node.koordinator.sh/thirdPartyAllocations": "ThirdPartyAllocations",
    "node.koordinator.sh/be-cpu-shared-pools": "CPUSharedPool",
    "node.koordinator.sh/cpu-shared-pools": "CPUSharedPool",
    "node.koordinator.sh/pod-cpu-allocs": "PodCPUAlloc",
    "scheduling.koordinator.sh/device-allocate-hint": "DeviceHint",
    "scheduling.koordinator.sh/device-allocated": "DeviceAllocation",
    "scheduling.koordinator.sh/device-joint-allocate": "DeviceJointAllocate",
    "scheduling.koordinator.sh/exact-match-reservation": "ExactMatchReservationSpec",
    "scheduling.koordinator.sh/gpu-partition-spec": "GPUPartitionSpec",
    "scheduling.koordinator.sh/numa-topology-spec": "NUMATopologySpec",
    "scheduling.koordinator.sh/reservation-affinity": "ReservationAffinity",
    "scheduling.koordinator.sh/reservation-allocated": "ReservationAllocated",
    "scheduling.koordinator.sh/reservation-owners": "ReservationOwner",
    "scheduling.koordinator.sh/reservation-resize-allocatable": "ReservationResizeAllocatable",
    "scheduling.koordinator.sh/reservation-restricted-options": "ReservationRestrictedOptions",
    "scheduling.koordinator.sh/resource-spec": "ResourceSpec",
    "scheduling.koordinator.sh/resource-status": "ResourceStatus",
    "scheduling.koordinator.sh/soft-eviction": "SoftEvictionSpec",
    "scheduling.koordinator.sh/usage-thresholds": "CustomUsageThresholds",
}
#: Structs of the sections of the ConfigMap slo-controller-config.
_SECTIONS: Final[Mapping[str, str]] = {
    "colocation-config": "ColocationCfg",
    "resource-threshold-config": "ResourceThresholdCfg",
    "resource-qos-config": "ResourceQOSCfg",
    "cpu-burst-config": "CPUBurstCfg",
    "system-config": "SystemCfg",
    "host-application-config": "HostApplicationCfg",
    "cpu-normalization-config": "CPUNormalizationCfg",
    "resource-amplification-config": "ResourceAmplificationCfg",
}


def introduced(history: Sequence[Release], scope: str, name: str) -> str | None:
    """Return the first release of a history that has a name, None if none has it."""
    before: Release | None = None
    for release in history:
        if _has(_found(release, scope), name):
            is_first = release.version == _FIRST or (before is not None and _begun(before, scope))
            return str(release) if is_first else f"{release} or earlier"
        before = release
    return None


def _begun(release: Release, scope: str) -> bool:
    """Return whether a release has the folder of a scope, whose files may have been elsewhere."""
    is_configuration = scope.startswith(("configuration", "scheduler args"))
    return release.project != "Kubernetes" or release.has(
        "component-base" if is_configuration else "api"
    )


def _has(found: Found, name: str) -> bool:
    """Return whether a name is there, or is a field of what is there without its fields."""
    if name in found:
        return True
    if "" not in found:  # not a scope of fields, or its struct does not exist
        return False
    if name.startswith(_OF_OBJECTS):
        return True
    outer = name
    while outer := outer.rpartition(".")[0]:
        path = outer.removesuffix(".<key>").rstrip("[]")
        if path in found:
            return found[path]
    return found[""]


@cache
def _found(release: Release, scope: str) -> Found:
    for pattern, query in _QUERIES[release.project]:
        matched = re.fullmatch(pattern, scope)
        if matched is not None:
            return query(release, matched[1] if matched.lastindex else "")
    return {}


def _names(names: Iterable[str]) -> Found:
    return dict.fromkeys(names, False)


def _constants(*folders: str) -> _Query:
    return lambda release, _: _names(release.sources.constants(*folders))


def _literals(*folders: str) -> _Query:
    return lambda release, _: _names(release.sources.literals(*folders))


def _metrics(release: Release, _: str) -> Found:
    return _names(release.sources.metrics())


def _arguments(folders: str) -> _Query:
    return lambda release, plugin: _fields(release.sources, folders, f"{plugin}Args")


def _kinds(release: Release, _: str) -> Found:
    return _names(release.schemas)


def _resource(release: Release, kind: str) -> Found:
    return dict(_schema_fields(release.schemas.get(kind), ""))


def _format(release: Release, key: str) -> Found:
    sources = release.sources
    if key not in _FORMATS and key in sources.constants("apis", "pkg"):
        return {"": True}  # a struct of Kubernetes
    return _fields(sources, r"(apis|pkg)/.*", _FORMATS.get(key))


def _section(release: Release, key: str) -> Found:
    return _fields(release.sources, r"(apis|pkg)/.*", _SECTIONS.get(key))


def _flags(release: Release, command: str) -> Found:
    return _names(release.sources.flags(*_folders(_COMMANDS[command])))


def _kubernetes_flags(release: Release, command: str) -> Found:
    """Return the flags of whole releases: declarations have moved between repositories."""
    if not release.has("kubernetes"):
        return {}
    folders: Sequence[str] = ("apiserver", "component-base/logs")
    if command == "koord scheduler":
        folders = (*STAGED, "kubernetes/cmd/kube-scheduler")
    return _names(release.sources.flags(*folders))


def _kubernetes_metrics(release: Release, _: str) -> Found:
    return _names(release.sources.metrics()) if release.has("kubernetes") else {}


def _events(release: Release, component: str) -> Found:
    return _names(release.sources.literals(*_folders(component)))


def _folders(component: str) -> Iterator[str]:
    if component in _FOLDERS:
        yield f"cmd/{component}"
        yield from _SHARED
        for folder in _FOLDERS[component]:
            yield f"pkg/{folder}"


def _fields(sources: GoSources, folders: str, struct: str | None) -> Found:
    """Return the fields of a struct in every folder that has it, and the struct as a field ''."""
    found: dict[str, bool] = {}
    for folder in sources.folders(folders):
        if struct is not None and sources.has_struct(folder, struct):
            found |= {"": False, **sources.fields(folder, struct)}
    return found


def _schema_fields(schema: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Yield paths of the fields of a schema; true where it does not describe the fields below."""
    if schema is None:
        return
    below = schema
    suffix = ""
    while True:
        if below.get("type") == "array":
            below, suffix = below["items"], f"{suffix}[]"
        elif isinstance(below.get("additionalProperties"), dict):
            below, suffix = below["additionalProperties"], f"{suffix}.<key>"
        else:
            break
    inner = below.get("properties", {})
    yield path, below.get("type") == "object" and not inner
    for name, each in inner.items():
        yield from _schema_fields(each, f"{path}{suffix}.{name}" if path else name)


_KEYS: Final = "label|annotation|resource name"
_PLUGIN_NAMES: Final = "kubernetes/pkg/scheduler/framework/plugins/names"
_CONFIGURATION: Final = r"kube-scheduler/config/v\w+"
_QUERIES: Final[Mapping[str, Sequence[tuple[str, _Query]]]] = {
    "Koordinator": (
        (_KEYS, _constants("apis", "pkg", "cmd")),
        ("kind", _kinds),
        (r"resource (.*)", _resource),
        (r"format (.*)", _format),
        ("section", _constants("apis", "pkg")),
        (r"section (.*)", _section),
        (
            r"configuration (DeschedulerConfiguration)",
            lambda release, kind: _fields(
                release.sources, r"pkg/descheduler/apis/config/v\w+", kind
            ),
        ),
        (r"scheduler args of (.*)", _arguments(r"pkg/scheduler/apis/config/v\w+")),
        (r"descheduler args of (.*)", _arguments(r"pkg/descheduler/apis/config/v\w+")),
        ("scheduler", _literals("pkg/scheduler")),
        ("descheduler", _literals("pkg/descheduler")),
        (r"gate .*", _literals("pkg")),
        (rf"flag ({'|'.join(_COMMANDS)})", _flags),
        ("environment variable", _literals("cmd", "pkg")),
        (r"metric .*", _metrics),
        (r"event (.*)", _events),
        (r"(?:condition|reason) .*", _constants("apis")),
    ),
    "Kubernetes": (
        (_KEYS, _constants("api/core/v1")),
        (r"(?:condition|reason) Pod.*", _constants("api/core/v1")),
        (
            r"configuration (KubeSchedulerConfiguration)",
            lambda release, kind: _fields(release.sources, _CONFIGURATION, kind),
        ),
        (r"scheduler args of (.*)", _arguments(_CONFIGURATION)),
        ("scheduler", _constants(_PLUGIN_NAMES)),
        (rf"flag ({'|'.join(_COMMANDS)})", _kubernetes_flags),
        (r"metric (?:koord-scheduler|every component)", _kubernetes_metrics),
        ("event koord-scheduler", _literals("kubernetes/pkg/scheduler")),
        ("event every component with a Lease", _literals("client-go")),
    ),
    "descheduler": (
        (_KEYS, _constants("pkg")),
        (r"descheduler args of (.*)", _arguments(r"pkg/.*plugins/\w+")),
        ("descheduler", _literals("pkg")),
        ("metric koord-descheduler", _metrics),
    ),
}
