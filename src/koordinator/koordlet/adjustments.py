"""Adjustments of a container by hooks, and the policy for hooks that fail.

The code that computes them writes nothing; the container runtime applies them before the
container's first instruction.  Values come from annotations and other input of users, so each
value that could break out of its field is rejected at construction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from enum import StrEnum
from typing import Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.files import relative_path
from koordinator.foundation.lazy_dataclass import dataclass

MOST_ENV_BYTES: Final = 128 << 10  # of one variable, the kernel's MAX_ARG_STRLEN
MOST_ENV_TOTAL_BYTES: Final = 512 << 10
_DEVICE_KINDS: Final = ("c", "b")
_MOST_MODE: Final = 0o777


@dataclass(frozen=True, slots=True)
class ContainerMount:
    """Folder or file of the machine, mounted into the container at ``destination``.

    Raises InputError unless both are absolute paths without ``.`` and ``..``.
    """

    destination: str
    source: str
    options: tuple[str, ...] = ("rbind",)
    kind: str = "bind"

    def __post_init__(self) -> None:
        """Check the paths."""
        _check_path(self.destination, "mounts.destination")
        _check_path(self.source, "mounts.source")


@dataclass(frozen=True, slots=True)
class ContainerDevice:
    """Device node that the container may read, write and create.

    Raises InputError unless ``path`` is absolute without ``.`` and ``..``, and ``kind`` is c or b.
    """

    path: str
    major: int
    minor: int
    kind: str = "c"
    mode: int = 0o666

    def __post_init__(self) -> None:
        """Check the fields that the runtime would accept unchecked."""
        _check_path(self.path, "devices.path")
        if self.kind not in _DEVICE_KINDS:
            allowed = " or ".join(_DEVICE_KINDS)
            raise InputError(f"must be {allowed}, got {self.kind!r}", path="devices.kind")
        if self.major < 0 or self.minor < 0 or not 0 <= self.mode <= _MOST_MODE:
            got = f"{self.major}:{self.minor}, mode {self.mode:o}"
            raise InputError(
                f"must have a major, a minor and a mode up to 777, got {got}", path="devices"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxResources:
    """Limits of a container, in the units of cgroup v1; None keeps the kubelet's value.

    ``cpu_quota_us`` is per 100 ms and, like ``memory_limit_bytes``, -1 for no limit.
    ``rdt_class`` is a group of resctrl, which has to exist.
    """

    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    cpuset_cpus: str | None = None
    memory_limit_bytes: int | None = None
    rdt_class: str | None = None

    def joined(self, later: "LinuxResources") -> "LinuxResources":
        """Return the union; fields of ``later`` take precedence."""
        stated = {
            each.name: value
            for each in fields(self)
            if (value := getattr(later, each.name)) is not None
        }
        return LinuxResources(**{**{f.name: getattr(self, f.name) for f in fields(self)}, **stated})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAdjustment:
    """Changes to one container at its creation.

    Raises InputError for an environment that the kernel would reject.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ContainerMount, ...] = ()
    devices: tuple[ContainerDevice, ...] = ()
    resources: LinuxResources = LinuxResources()

    def __post_init__(self) -> None:
        """Check the environment."""
        total = 0
        for name, value in self.env.items():
            size = len(name.encode()) + len(value.encode()) + 2
            total += size
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise InputError(
                    f"must be a name without '=' and a value without zero bytes, got {name[:80]!r}",
                    path="env",
                )
            if size > MOST_ENV_BYTES or total > MOST_ENV_TOTAL_BYTES:
                raise InputError(
                    f"must have at most {MOST_ENV_BYTES} bytes per variable and "
                    f"{MOST_ENV_TOTAL_BYTES} in total, got {size} and {total} at {name[:80]}",
                    path="env",
                )

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self == ContainerAdjustment()

    def joined(self, later: "ContainerAdjustment") -> "ContainerAdjustment":
        """Return the union; variables, mounts and devices of ``later`` take precedence."""
        mounts = {each.destination: each for each in (*self.mounts, *later.mounts)}
        devices = {each.path: each for each in (*self.devices, *later.devices)}
        return ContainerAdjustment(
            env={**self.env, **later.env},
            annotations={**self.annotations, **later.annotations},
            mounts=tuple(mounts.values()),
            devices=tuple(devices.values()),
            resources=self.resources.joined(later.resources),
        )


def join_adjustments(parts: Iterable[ContainerAdjustment]) -> ContainerAdjustment:
    """Return the union; later parts take precedence."""
    whole = ContainerAdjustment()
    for part in parts:
        whole = whole.joined(part)
    return whole


def _check_path(text: str, path: str) -> None:
    if not text.startswith("/") or f"/{relative_path(text, path=path)}" != text:
        raise InputError(
            f"must be an absolute path without '.', '..' and double '/', got {text[:80]!r}",
            path=path,
        )


class FailurePolicy(StrEnum):
    """Ignore: the container starts without the hook's changes.  Fail: it does not start."""

    IGNORE = "Ignore"
    FAIL = "Fail"


class UnpreparedPolicy(StrEnum):
    """Handling of a container that was created while the hooks were unavailable.

    Report: write an event and a metric.  Restart: also stop it, if the kubelet restarts it.
    """

    REPORT = "Report"
    RESTART = "Restart"
