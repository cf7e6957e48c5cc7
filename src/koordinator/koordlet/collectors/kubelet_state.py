"""Which CPUs the kubelet's own CPU manager has given away.

Source: kubernetes pkg/kubelet/cm/cpumanager/state/checkpoint.go; koordinator
states_noderesourcetopology.go, ``calGuaranteedCpu``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.port import Files


class _PodEntry(msgspec.Struct):
    cpu_set: str = msgspec.field(name="cpuSet", default="")


class _Checkpoint(msgspec.Struct, rename="camel"):
    """State of the CPU manager; from version 4 on ``data`` has all of it as text."""

    policy_name: str = "none"
    entries: dict[str, dict[str, str]] = {}
    pod_entries: dict[str, _PodEntry] = {}
    data: str = ""


@dataclass(frozen=True, slots=True)
class KubeletState:
    """``policy`` is none or static; ``cpus`` are masks by UID of the pod."""

    policy: str = "none"
    cpus: Mapping[str, int] = field(default_factory=dict)


def read_kubelet_state(files: Files, kubelet_root: str) -> KubeletState:
    """Return the state of the CPU manager; the policy none if there is no readable one."""
    try:
        text = files.read(f"{kubelet_root}/cpu_manager_state")
        found = decode_json(text, _Checkpoint)
        if found.data:
            found = decode_json(found.data, _Checkpoint)
        masks = {uid: _union(containers.values()) for uid, containers in found.entries.items()}
        for uid, entry in found.pod_entries.items():
            masks[uid] = masks.get(uid, 0) | parse_cpu_list(entry.cpu_set)
    except (HostError, InputError, msgspec.DecodeError, msgspec.ValidationError):
        return KubeletState()
    return KubeletState(found.policy_name, {uid: mask for uid, mask in masks.items() if mask})


def _union(lists: Iterable[str]) -> int:
    mask = 0
    for text in lists:
        mask |= parse_cpu_list(text)
    return mask
