"""What a container gets besides its spec when it is made, as data.

Whoever decides this writes nothing: the container runtime does, before the container's first
instruction.  The texts come from annotations and other things that people write, so every value
that would lead out of its field is refused where it is made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.path_component import relative_path

MOST_ENV_BYTES: Final = 128 << 10  # of one variable, as the kernel takes it (MAX_ARG_STRLEN)
MOST_ENV_TOTAL_BYTES: Final = 512 << 10
_DEVICE_KINDS: Final = ("c", "b")
_MOST_MODE: Final = 0o777


@dataclass(frozen=True, slots=True)
class ContainerMount:
    """A folder or file of the machine, seen in the container at ``destination``.

    Both are absolute paths without ``.`` and ``..``; raises InputError for others.
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
    """A device node that the container gets, and may read, write and make.

    ``path`` is absolute and without ``.`` and ``..``; ``kind`` is c or b; raises InputError for
    others.
    """

    path: str
    major: int
    minor: int
    kind: str = "c"
    mode: int = 0o666

    def __post_init__(self) -> None:
        """Check what the runtime would take unseen."""
        _check_path(self.path, "devices.path")
        if self.kind not in _DEVICE_KINDS:
            accepted = ", ".join(_DEVICE_KINDS)
            raise InputError(f"found {self.kind!r}; accepted is {accepted}", path="devices.kind")
        if self.major < 0 or self.minor < 0 or not 0 <= self.mode <= _MOST_MODE:
            found = f"{self.major}:{self.minor}, mode {self.mode:o}"
            raise InputError(f"found {found}; accepted is a device and its mode", path="devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxResources:
    """Limits of a container, in the units of cgroup v1; None leaves what the kubelet asked for.

    ``cpu_quota_us`` is per 100 ms and, like ``memory_limit_bytes``, -1 for no limit.
    ``rdt_class`` is a group of resctrl, which has to exist.
    """

    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    cpuset_cpus: str | None = None
    memory_limit_bytes: int | None = None
    rdt_class: str | None = None

    def joined(self, later: "LinuxResources") -> "LinuxResources":
        """Return both; where both say something ``later`` counts."""
        stated = {
            each.name: value
            for each in fields(self)
            if (value := getattr(later, each.name)) is not None
        }
        return LinuxResources(**{**{f.name: getattr(self, f.name) for f in fields(self)}, **stated})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAdjustment:
    """What one container gets besides its spec.

    Raises InputError for an environment that no process could be started with.
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
                    f"found {name[:80]!r}; accepted is a name without '=', and no zero byte",
                    path="env",
                )
            if size > MOST_ENV_BYTES or total > MOST_ENV_TOTAL_BYTES:
                raise InputError(
                    f"{name[:80]} makes it {total} bytes; accepted are {MOST_ENV_BYTES} for one "
                    f"variable and {MOST_ENV_TOTAL_BYTES} for all",
                    path="env",
                )

    @property
    def is_empty(self) -> bool:
        """Whether the container stays as it is."""
        return self == ContainerAdjustment()

    def joined(self, later: "ContainerAdjustment") -> "ContainerAdjustment":
        """Return both; of one variable, mount or device the ``later`` one counts."""
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
    """Return all of them as one; of two that differ the later one counts."""
    whole = ContainerAdjustment()
    for part in parts:
        whole = whole.joined(part)
    return whole


def _check_path(text: str, path: str) -> None:
    if not text.startswith("/") or f"/{relative_path(text, path=path)}" != text:
        raise InputError(
            f"found {text[:80]!r}; accepted is an absolute path without '.', '..' and double '/'",
            path=path,
        )
