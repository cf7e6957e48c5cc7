"""Cgroup directories of pods, containers and host applications.

Source: koordinator pkg/koordlet/util/system/cgroup_driver.go, pkg/koordlet/util/pod.go,
container.go, host_application.go; kubernetes pkg/kubelet/cm/pod_container_manager_linux.go.
"""

from enum import StrEnum
from typing import Final

from koordinator.api.node_slo import HostApplication
from koordinator.api.qos import KubeQos, QosClass
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import PathComponent, path_component, relative_path
from koordinator.foundation.lazy_dataclass import dataclass

_RUNTIME_PREFIXES: Final = {
    "containerd": "cri-containerd-",
    "docker": "docker-",
    "pouch": "pouch-",
    "cri-o": "crio-",
}
_BASES: Final = ("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort")
_KUBEPODS: Final = "kubepods"
BESTEFFORT_BASE: Final = "KubepodsBesteffort"


class CgroupDriver(StrEnum):
    """Driver that names the cgroups of pods."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Directories in their hierarchy, without slashes around.

    ``root`` are the components of the kubelet's ``cgroupRoot``, which contains the directory of all
    pods.
    """

    driver: CgroupDriver = CgroupDriver.SYSTEMD
    root: tuple[str, ...] = ()

    @property
    def kubepods(self) -> str:
        """Parent of all pods; pods of kube QoS Guaranteed are directly below it."""
        parts = (*self.root, _KUBEPODS)
        if self.driver is CgroupDriver.CGROUPFS:
            return "/".join(parts)
        names = [part.replace("-", "_") for part in parts]  # a dash separates slices
        return "/".join(f"{'-'.join(names[:end])}.slice" for end in range(1, len(names) + 1))

    @property
    def burstable(self) -> str:
        """Parent of the pods of kube QoS Burstable."""
        return self._tier("burstable")

    @property
    def besteffort(self) -> str:
        """Parent of the pods of kube QoS BestEffort."""
        return self._tier("besteffort")

    def tier(self, qos: KubeQos) -> str:
        """Return the parent directory of the pods of a kube QoS class."""
        match qos:
            case KubeQos.GUARANTEED:
                return self.kubepods
            case KubeQos.BURSTABLE:
                return self.burstable
            case KubeQos.BEST_EFFORT:
                return self.besteffort

    def pod(self, qos: KubeQos, uid: PathComponent) -> str:
        """Return the directory of a pod."""
        above = self.tier(qos)
        is_systemd = self.driver is CgroupDriver.SYSTEMD
        return self._below(above, f"pod{uid.replace('-', '_') if is_systemd else uid}")

    def container(self, pod_folder: str, container_id: str) -> str:
        """Return the directory of a container; its id is ``runtime://hash``.

        Raises InputError for an id without hash, one that is not a single path component, and, with
        the systemd driver, an unknown runtime.
        """
        runtime, _, identity = container_id.partition("://")
        if not identity:
            raise InputError(f"must be <runtime>://<id>, got {container_id!r}", path="containerID")
        name = path_component(identity, path="containerID")
        if self.driver is CgroupDriver.CGROUPFS:
            return f"{pod_folder}/{name}"
        prefix = _RUNTIME_PREFIXES.get(runtime)
        if prefix is None:
            raise InputError(
                f"the runtime must be one of {', '.join(_RUNTIME_PREFIXES)}, got {runtime!r}",
                path="containerID",
            )
        return f"{pod_folder}/{prefix}{name}.scope"

    def level(self, folder: str) -> str:
        """Return the level of a directory: ``kubeqos``, ``pod`` or ``container``; else empty."""
        tiers = (self.besteffort, self.burstable, self.kubepods)
        if folder in tiers:
            return "kubeqos"
        for tier in tiers:
            if folder.startswith(f"{tier}/"):
                return "container" if "/" in folder[len(tier) + 1 :] else "pod"
        return ""

    def host_application(self, application: HostApplication) -> str:
        """Return the directory of a host application.

        Raises InputError for an unknown base, and for a path that leaves it.
        """
        place = application.cgroup_path
        if place is None:
            return _default_folder(application)
        parts = (
            self._base(place.base),
            relative_path(place.parent_dir, path="cgroupPath.parentDir"),
            relative_path(place.relative_path, path="cgroupPath.relativePath"),
        )
        return "/".join(filter(None, parts))

    def _base(self, base: str) -> str:
        folders = ("", self.kubepods, self.burstable, self.besteffort)
        if base not in _BASES and base:
            raise InputError(
                f"must be one of {', '.join(_BASES)}, got {base!r}", path="cgroupPath.base"
            )
        return dict(zip(_BASES, folders, strict=True)).get(base, "")

    def _tier(self, name: str) -> str:
        return self._below(self.kubepods, name)

    def _below(self, folder: str, name: str) -> str:
        if self.driver is CgroupDriver.CGROUPFS:
            return f"{folder}/{name}"
        stem = folder.rpartition("/")[2].removesuffix(".slice")
        return f"{folder}/{stem}-{name}.slice"


def cgroup_root_parts(text: str) -> tuple[str, ...]:
    """Return the components of the kubelet's ``cgroupRoot``, such as ``/kubelet``.

    Raises InputError for a path that leaves the hierarchy.
    """
    return tuple(part for part in relative_path(text, path="cgroupRoot").split("/") if part)


def layout_of(kubepods: str) -> CgroupLayout | None:
    """Return the layout with this directory of all pods; None if there is none."""
    *above, name = kubepods.split("/")
    if name == _KUBEPODS:
        return CgroupLayout(CgroupDriver.CGROUPFS, tuple(above))
    root = tuple(name.removesuffix(".slice").split("-"))[:-1]
    layout = CgroupLayout(CgroupDriver.SYSTEMD, root)
    return layout if layout.kubepods == kubepods else None


def _default_folder(application: HostApplication) -> str:
    name = path_component(application.name, path="name")
    match application.qos:
        case QosClass.LSE | QosClass.LSR | QosClass.LS:
            return f"host-latency-sensitive/{name}"
        case QosClass.BE:
            return f"host-best-effort/{name}"
        case _:
            return name
