"""Which cgroup belongs to which pod, container or program outside of pods.

Source: koordinator pkg/koordlet/util/system/cgroup_driver.go, pkg/koordlet/util/pod.go,
container.go, host_application.go; kubernetes pkg/kubelet/cm/pod_container_manager_linux.go.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordinator.api.node_slo import HostApplication
from koordinator.api.qos import KubeQos, QosClass
from koordinator.foundation.errors import InputError
from koordinator.foundation.path_component import PathComponent, path_component, relative_path

_RUNTIME_PREFIXES: Final = {
    "containerd": "cri-containerd-",
    "docker": "docker-",
    "pouch": "pouch-",
    "cri-o": "crio-",
}
_BASES: Final = ("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort")
BESTEFFORT_BASE: Final = "KubepodsBesteffort"


class CgroupDriver(StrEnum):
    """Who names the cgroups of pods."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Folders in their hierarchy, without slashes around."""

    driver: CgroupDriver = CgroupDriver.SYSTEMD

    @property
    def kubepods(self) -> str:
        """Above all pods; those of kube QoS Guaranteed lie directly in it."""
        return "kubepods.slice" if self.driver is CgroupDriver.SYSTEMD else "kubepods"

    @property
    def burstable(self) -> str:
        """Above the pods of kube QoS Burstable."""
        return self._tier("burstable")

    @property
    def besteffort(self) -> str:
        """Above the pods of kube QoS BestEffort."""
        return self._tier("besteffort")

    def tier(self, qos: KubeQos) -> str:
        """Return the folder above the pods of a kube QoS class."""
        match qos:
            case KubeQos.GUARANTEED:
                return self.kubepods
            case KubeQos.BURSTABLE:
                return self.burstable
            case KubeQos.BEST_EFFORT:
                return self.besteffort

    def pod(self, qos: KubeQos, uid: PathComponent) -> str:
        """Return the folder of a pod."""
        above = self.tier(qos)
        if self.driver is CgroupDriver.CGROUPFS:
            return f"{above}/pod{uid}"
        stem = above.rpartition("/")[2].removesuffix(".slice")
        return f"{above}/{stem}-pod{uid.replace('-', '_')}.slice"

    def container(self, pod_folder: str, container_id: str) -> str:
        """Return the folder of a container; its id is ``runtime://hash``, as the kubelet reports.

        Raises InputError for an id without hash or one that is no single name, and, below systemd,
        for an unknown runtime.
        """
        runtime, _, identity = container_id.partition("://")
        if not identity:
            raise InputError(
                f"found {container_id!r}; accepted is <runtime>://<id>", path="containerID"
            )
        name = path_component(identity, path="containerID")
        if self.driver is CgroupDriver.CGROUPFS:
            return f"{pod_folder}/{name}"
        prefix = _RUNTIME_PREFIXES.get(runtime)
        if prefix is None:
            raise InputError(
                f"found runtime {runtime!r}; accepted is {', '.join(_RUNTIME_PREFIXES)}",
                path="containerID",
            )
        return f"{pod_folder}/{prefix}{name}.scope"

    def level(self, folder: str) -> str:
        """Return what a folder belongs to: ``kubeqos``, ``pod`` or ``container``; else nothing."""
        tiers = (self.besteffort, self.burstable, self.kubepods)
        if folder in tiers:
            return "kubeqos"
        for tier in tiers:
            if folder.startswith(f"{tier}/"):
                return "container" if "/" in folder[len(tier) + 1 :] else "pod"
        return ""

    def host_application(self, application: HostApplication) -> str:
        """Return the folder of a program outside of pods.

        Raises InputError for an unknown base, and for a path that leads out of it.
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
                f"found {base!r}; accepted is {', '.join(_BASES)}", path="cgroupPath.base"
            )
        return dict(zip(_BASES, folders, strict=True)).get(base, "")

    def _tier(self, name: str) -> str:
        if self.driver is CgroupDriver.CGROUPFS:
            return f"kubepods/{name}"
        return f"kubepods.slice/kubepods-{name}.slice"


def _default_folder(application: HostApplication) -> str:
    name = path_component(application.name, path="name")
    match application.qos:
        case QosClass.LSE | QosClass.LSR | QosClass.LS:
            return f"host-latency-sensitive/{name}"
        case QosClass.BE:
            return f"host-best-effort/{name}"
        case _:
            return name
