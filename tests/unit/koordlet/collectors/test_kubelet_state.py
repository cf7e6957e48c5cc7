"""CPUs that the kubelet gave to containers and, from Kubernetes 1.37 on, to whole pods."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.memory_host import MemoryHost

from koordinator.koordlet.collectors.kubelet import KubeletState, read_kubelet_state

STATE: dict[str, Any] = {
    "policyName": "static",
    "defaultCpuSet": "0-1",
    "entries": {"uid-a": {"c0": "2-3", "c1": "4"}},
}
WITH_PODS = STATE | {"podEntries": {"uid-a": {"cpuSet": "2-5"}, "uid-b": {"cpuSet": "6"}}}


def read(state: object, before: KubeletState | None = None) -> KubeletState:
    """Return what is read of a checkpoint."""
    host = MemoryHost()
    host.put("/kubelet/cpu_manager_state", json.dumps(state))
    return read_kubelet_state(host, "/kubelet", before)


@pytest.mark.parametrize(
    ("state", "cpus"),
    [
        (STATE, {"uid-a": 0b11100}),
        (WITH_PODS, {"uid-a": 0b111100, "uid-b": 0b1000000}),
        (STATE | {"data": json.dumps(WITH_PODS)}, {"uid-a": 0b111100, "uid-b": 0b1000000}),
    ],
    ids=["version 2", "version 3", "version 4"],
)
def test_every_version_of_the_checkpoint_is_read(state: object, cpus: dict[str, int]) -> None:
    """The CPUs of a pod are the union over its containers and the pod itself."""
    assert read(state) == KubeletState("static", cpus)


def test_unreadable_checkpoint_leaves_the_last_one_in_effect() -> None:
    """The kubelet still holds those CPUs; without an earlier reading they are unknown."""
    before, broken = read(STATE), STATE | {"data": "{"}
    kept = read(broken, before)

    assert replace(kept, problem="") == before
    assert kept.problem.startswith("/kubelet/cpu_manager_state must be a state of the kubelet's")
    assert read(STATE, kept) == before
    unknown = read(broken)
    assert (unknown.is_known, unknown.problem) == (False, kept.problem)
    assert read(broken, unknown) == unknown
    assert read(STATE, unknown) == before


def test_missing_checkpoint_is_that_of_no_cpu_manager() -> None:
    """An administrator deletes it to change the policy."""
    assert read_kubelet_state(MemoryHost(), "/kubelet", read(STATE)) == KubeletState()
