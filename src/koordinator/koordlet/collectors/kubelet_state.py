"""CPUs that the kubelet's CPU manager has allocated.

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
    """State file of the CPU manager; from version 4 on ``data`` contains all of it as text."""

    policy_name: str = "none"
    entries: dict[str, dict[str, str]] = {}
    pod_entries: dict[str, _PodEntry] = {}
    data: str = ""


@dataclass(frozen=True, slots=True)
class KubeletState:
    """Allocations of the CPU manager: policy none or static, and masks by pod UID."""

    policy: str = "none"
    cpus: Mapping[str, int] = field(default_factory=dict)


def read_kubelet_state(files: Files, kubelet_root: str) -> KubeletState:
    """Read the state of the CPU manager; policy none if it is missing or invalid."""
    try:
        text = files.read(f"{kubelet_root}/cpu_manager_state")
        checkpoint = decode_json(text, _Checkpoint)
        if checkpoint.data:
            checkpoint = decode_json(checkpoint.data, _Checkpoint)
        masks = {uid: _union(sets.values()) for uid, sets in checkpoint.entries.items()}
        for uid, entry in checkpoint.pod_entries.items():
            masks[uid] = masks.get(uid, 0) | parse_cpu_list(entry.cpu_set)
    except (HostError, InputError, msgspec.DecodeError, msgspec.ValidationError):
        return KubeletState()
    return KubeletState(checkpoint.policy_name, {uid: mask for uid, mask in masks.items() if mask})


def _union(lists: Iterable[str]) -> int:
    mask = 0
    for text in lists:
        mask |= parse_cpu_list(text)
    return mask
