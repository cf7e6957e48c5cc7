"""Intents of the node agent, as data: the code that computes them writes nothing.

Each intent carries a reason, which the executor writes into the audit trail.
"""

from collections.abc import Mapping

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SetCgroup:
    """Set one file of a cgroup to a value, in the spelling and units of cgroup v1.

    ``folder`` is the cgroup's path in its hierarchy; ``owner`` names the pod or container for
    people.  ``is_observed`` marks an intent derived from a value read just now, so that it is
    written even if the same value was written before.  ``runtime_value`` is the value with which
    the container runtime has the same effect, if it is another one.
    """

    file: CgroupFile
    folder: str
    value: str
    reason: str
    owner: str = ""
    is_observed: bool = False
    runtime_value: str = ""


@dataclass(frozen=True, slots=True)
class SetBlockDevice:
    """Set a line of a block device file to ``device value``.

    ``reset`` marks a value equal to a missing line: it is written only over a different value.
    """

    file: CgroupFile
    folder: str
    device: str  # major:minor
    value: str
    reason: str
    owner: str = ""
    reset: bool = False


@dataclass(frozen=True, slots=True)
class SetFile:
    """Set a file of /proc or /sys to a value; ``path`` is below the root ``tree``.

    ``matches`` is the text that the file reads back if it differs from the value; it may also be
    one word among others, as in sched_features.
    """

    tree: str  # sysctl, sys, proc
    path: str
    value: str
    reason: str
    owner: str = ""
    matches: str = ""


@dataclass(frozen=True, slots=True)
class SetResctrl:
    """Create or update a resctrl group with these schemata, and add these tasks to it.

    ``schemata`` are lines such as ``L3:0=ff;1=ff``.  Threads of the folders ``cgroups`` belong to
    the group.
    """

    group: str
    schemata: tuple[str, ...]
    cgroups: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveResctrl:
    """Remove a resctrl group; its tasks move to the root group."""

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class SetOomScore:
    """Set the OOM score adjustment of every process in a cgroup, -1000..1000."""

    folder: str
    value: int
    reason: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SetCoreCookie:
    """Restrict the processes of a cgroup to sharing CPU cores with processes of the same group.

    ``group`` None removes the cookie; an empty string is a group like any other.
    """

    folder: str
    group: str | None
    reason: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict a pod from the node.

    ``reason`` is one word for events; ``message`` names the exceeded threshold and the usage.
    ``folders`` are the cgroups of the pod's containers, below ``pod_folder``; without
    ``pod_folder`` no process is killed.  ``containers`` are their ids in the runtime, and
    ``grace_s`` is the pod's termination grace period.
    """

    namespace: str
    name: str
    uid: str
    folders: tuple[str, ...]
    reason: str
    message: str
    pod_folder: str = ""
    containers: tuple[str, ...] = ()
    grace_s: int = 0


@dataclass(frozen=True, slots=True)
class EndContainers:
    """Release containers of another runtime until ``amounts`` are free.

    ``amounts`` are batch-cpu in milli-CPU and batch-memory in bytes; ``reason`` and ``message``
    are as in ``EvictPod``.
    """

    amounts: Mapping[str, float]
    reason: str
    message: str


Intent = (
    SetCgroup
    | SetBlockDevice
    | SetFile
    | SetResctrl
    | RemoveResctrl
    | SetOomScore
    | SetCoreCookie
    | EvictPod
)
