"""What the node agent wants of its machine, as data: who decides this writes nothing.

Every intent says why; the executor puts that into the audit trail.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.domain.cgroups.files import CgroupFile


@dataclass(frozen=True, slots=True)
class SetCgroup:
    """One file of one cgroup is to have a value, in the spelling and units of cgroup v1.

    ``folder`` is that of the cgroup in its hierarchy; ``owner`` says whose it is, for people.
    ``is_observed`` marks an intent that follows from another value just read, so that it is written
    even if the same was written before.
    """

    file: CgroupFile
    folder: str
    value: str
    reason: str
    owner: str = ""
    is_observed: bool = False


@dataclass(frozen=True, slots=True)
class SetBlockDevice:
    """A line of a file of block devices is to be ``device value``.

    ``reset`` marks a value that is the same as having no line: it is written only over another.
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
    """A file of /proc or /sys is to have a value; ``path`` is below the root ``tree``.

    ``matches`` is what the file reads when it has the value, if that differs from it; it may also
    be one word among others, as in sched_features.
    """

    tree: str  # sysctl, sys, proc
    path: str
    value: str
    reason: str
    owner: str = ""
    matches: str = ""


@dataclass(frozen=True, slots=True)
class SetResctrl:
    """A group of resctrl is to exist, with these schemata and, besides its own, these tasks.

    ``schemata`` are lines such as ``L3:0=ff;1=ff``.  ``cgroups`` are the folders whose threads
    belong to the group.
    """

    group: str
    schemata: tuple[str, ...]
    cgroups: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveResctrl:
    """A group of resctrl is to go; its tasks fall back to the root group."""

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class SetOomScore:
    """Every process of a cgroup is to have an OOM score adjustment, -1000..1000."""

    folder: str
    value: int
    reason: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SetCoreCookie:
    """The processes of a cgroup share CPU cores only with those of the same group.

    ``group`` None is to have no cookie; an empty one is a group like any other.
    """

    folder: str
    group: str | None
    reason: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class EvictPod:
    """A pod is to leave the node.

    ``reason`` is one word for events, ``message`` says which threshold was exceeded and by whom.
    ``folders`` are those of the pod's containers, and below ``pod_folder``; without that nothing
    is ended on the machine.  ``containers`` are the ids by which the runtime knows them, and
    ``grace_s`` is what the pod wants to be given to end.
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
    """Containers of another runtime are to end, until so much is released.

    ``amounts`` are batch-cpu in milli-CPU and batch-memory in bytes; ``reason`` and ``message`` as
    of ``EvictPod``.
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
