"""Configuration of the kubelet that concerns its cgroups, and allocations of its CPU manager.

Source: k8s.io/kubelet config/v1beta1/types.go; kubernetes cmd/kubelet/app/options; kubernetes
pkg/kubelet/cm/cpumanager/state/checkpoint.go; koordinator states_noderesourcetopology.go,
``calGuaranteedCpu``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

import msgspec
import yaml

from koordinator.domain.cgroups.layout import cgroup_root_parts
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.decoders import convert, decode_json
from koordinator.foundation.errors import HostError, InputError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Files, Roots
from koordinator.koordlet.collectors.context import read_text

_FLAG = "--cgroup-root"
_CONFLICT = "the kubelet writes files of koordlet's memory QoS,"


class _File(msgspec.Struct, rename="camel"):
    cgroup_root: str | None = None
    memory_throttling_factor: float | None = None
    memory_reservation_policy: str | None = None
    feature_gates: dict[str, bool] = {}


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """Known part of the configuration.

    ``cgroup_root`` are the parts of the folder above kubepods; None if it is not configured.
    ``started`` identifies the process; empty if it was not found.
    """

    cgroup_root: tuple[str, ...] | None = None
    memory_throttling_factor: float | None = None
    memory_reservation_policy: str = ""
    memory_qos: bool | None = None
    started: str = ""

    @property
    def memory_problem(self) -> str:
        """Conflict between the kubelet's and koordlet's memory QoS; empty without one."""
        if self.memory_qos is False:
            return ""
        if self.memory_reservation_policy == "TieredReservation":
            return f"{_CONFLICT} memoryReservationPolicy TieredReservation: memory.min, memory.low"
        if self.memory_throttling_factor is not None:
            factor = self.memory_throttling_factor
            return f"{_CONFLICT} memoryThrottlingFactor {factor:g}: memory.high"
        return ""


def read_kubelet_config(files: Files, roots: Roots) -> KubeletConfig:
    """Read the configuration from ``config.yaml`` and the command line of the process."""
    file = _read_file(files, f"{roots.kubelet}/config.yaml")
    process = _find_process(files, roots.proc)
    stated = file.cgroup_root
    started = ""
    if process is not None:
        flag = _flag(read_text(files, f"{process}/cmdline").split("\0"))
        stated = stated if flag is None else flag
        started = _start_time(files, process)
    return KubeletConfig(
        cgroup_root=_parts(stated),
        memory_throttling_factor=file.memory_throttling_factor,
        memory_reservation_policy=file.memory_reservation_policy or "",
        memory_qos=file.feature_gates.get("MemoryQoS"),
        started=started,
    )


def has_ended(files: Files, config: KubeletConfig) -> bool:
    """Return whether the kubelet's process has ended; False if it was not found before."""
    process = config.started.partition("@")[0]
    return bool(process) and _start_time(files, process) != config.started


def _read_file(files: Files, path: str) -> _File:
    try:
        return convert(yaml.safe_load(files.read(path)) or {}, _File)
    except (HostError, yaml.YAMLError, msgspec.ValidationError):
        return _File()


def _find_process(files: Files, proc: str) -> str | None:
    """Return the /proc folder of the kubelet's process."""
    for name in files.folders(proc):
        if name.isdigit() and read_text(files, f"{proc}/{name}/comm") == "kubelet":
            return f"{proc}/{name}"
    return None


def _start_time(files: Files, process: str) -> str:
    """Return the process with its start time in clock ticks since boot."""
    fields = read_text(files, f"{process}/stat").rpartition(")")[2].split()
    return f"{process}@{fields[19]}" if len(fields) > 19 else process  # noqa: PLR2004 -- proc(5)


def _flag(arguments: list[str]) -> str | None:
    """Return the last value of the flag, also in the spelling with underscores."""
    stated = None
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == _FLAG:
            stated = value if equals else following
    return stated


def _parts(stated: str | None) -> tuple[str, ...] | None:
    if stated is None:
        return None
    try:
        return cgroup_root_parts(stated)
    except InputError:
        return None


class _PodEntry(msgspec.Struct):
    cpu_set: str = msgspec.field(name="cpuSet", default="")


class _Checkpoint(msgspec.Struct, rename="camel"):
    """State file of the CPU manager; from version 4 on ``data`` contains all of it as text."""

    policy_name: str = "none"
    entries: dict[str, dict[str, str]] = {}
    pod_entries: dict[str, _PodEntry] = {}
    data: str = ""


@dataclass(frozen=True, slots=True)
class KubeletState:
    """Allocations of the CPU manager: policy none or static, and masks by pod UID.

    ``problem`` is why the file could not be read; empty if the allocations are current.  The last
    reading stays in effect; if there is none, ``is_known`` is False, and the policy counts as
    static, under which CPUs belong to the kubelet.
    """

    policy: str = "none"
    cpus: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    is_known: bool = True


def read_kubelet_state(
    files: Files, kubelet_root: str, before: KubeletState | None
) -> KubeletState:
    """Read the state of the CPU manager; policy none if the file is missing.

    A file that can't be read leaves ``before`` in effect: the kubelet still holds those CPUs.
    Without a ``before`` the allocations are unknown.
    """
    path = f"{kubelet_root}/cpu_manager_state"
    try:
        text = files.read(path)
        checkpoint = decode_json(text, _Checkpoint)
        if checkpoint.data:
            checkpoint = decode_json(checkpoint.data, _Checkpoint)
        masks = {uid: _union(sets.values()) for uid, sets in checkpoint.entries.items()}
        for uid, entry in checkpoint.pod_entries.items():
            masks[uid] = masks.get(uid, 0) | parse_cpu_list(entry.cpu_set)
    except MissingFileError:
        return KubeletState()
    except (HostError, InputError, msgspec.DecodeError, msgspec.ValidationError) as error:
        problem = f"{path} must be a state of the kubelet's CPU manager: {error}"
        if before is None:
            return KubeletState("static", problem=problem, is_known=False)
        return replace(before, problem=problem)
    return KubeletState(checkpoint.policy_name, {uid: mask for uid, mask in masks.items() if mask})


def _union(lists: Iterable[str]) -> int:
    mask = 0
    for text in lists:
        mask |= parse_cpu_list(text)
    return mask
