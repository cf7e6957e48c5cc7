"""The folders of pods, containers and programs outside of pods."""

import pytest

from koordinator.api.node_slo import CgroupPath, HostApplication
from koordinator.api.qos import KubeQos
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import PathComponent

SYSTEMD = CgroupLayout(CgroupDriver.SYSTEMD)
CGROUPFS = CgroupLayout(CgroupDriver.CGROUPFS)


@pytest.mark.parametrize(
    ("qos", "systemd", "cgroupfs"),
    [
        (
            KubeQos.GUARANTEED,
            "kubepods.slice/kubepods-podab_cd.slice",
            "kubepods/podab-cd",
        ),
        (
            KubeQos.BURSTABLE,
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice",
            "kubepods/burstable/podab-cd",
        ),
        (
            KubeQos.BEST_EFFORT,
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podab_cd.slice",
            "kubepods/besteffort/podab-cd",
        ),
    ],
)
def test_folders_of_pods_are_named_as_by_the_kubelet(
    qos: KubeQos, systemd: str, cgroupfs: str
) -> None:
    """As the kubelet names them with each driver."""
    assert SYSTEMD.pod(qos, PathComponent("ab-cd")) == systemd
    assert CGROUPFS.pod(qos, PathComponent("ab-cd")) == cgroupfs


def test_folders_of_containers_have_the_prefix_of_the_runtime_below_systemd() -> None:
    """The runtime's prefix below systemd, the bare id else."""
    assert SYSTEMD.container("p", "containerd://12") == "p/cri-containerd-12.scope"
    assert SYSTEMD.container("p", "cri-o://12") == "p/crio-12.scope"
    assert CGROUPFS.container("p", "containerd://12") == "p/12"


@pytest.mark.parametrize("container_id", ["", "12", "containerd://", "containerd://a/../b"])
def test_an_id_without_hash_is_no_container(container_id: str) -> None:
    """A container that has not started has none yet."""
    with pytest.raises(InputError, match="containerID"):
        CGROUPFS.container("p", container_id)


def test_an_unknown_runtime_is_named() -> None:
    """Cgroups of an unknown runtime have unknown names."""
    with pytest.raises(InputError, match="the runtime must be one of containerd"):
        SYSTEMD.container("p", "new://12")


@pytest.mark.parametrize(
    ("application", "folder"),
    [
        (HostApplication(name="a", qos="LS"), "host-latency-sensitive/a"),
        (HostApplication(name="a", qos="BE"), "host-best-effort/a"),
        (HostApplication(name="a"), "a"),
        (
            HostApplication(
                name="fastpath",
                cgroup_path=CgroupPath(base="CgroupRoot", relative_path="net/fastpath"),
            ),
            "net/fastpath",
        ),
        (
            HostApplication(
                name="a",
                cgroup_path=CgroupPath(
                    base="KubepodsBesteffort", parent_dir="/x/", relative_path="y"
                ),
            ),
            "kubepods/besteffort/x/y",
        ),
    ],
)
def test_folders_of_host_applications(application: HostApplication, folder: str) -> None:
    """The folder is the configured one, or by default the folder of the QoS class."""
    assert CGROUPFS.host_application(application) == folder


@pytest.mark.parametrize(
    "path", [CgroupPath(base="Elsewhere"), CgroupPath(base="Kubepods", relative_path="../x")]
)
def test_a_path_out_of_its_base_is_refused(path: CgroupPath) -> None:
    """A NodeSLO can't lead the agent to other folders."""
    with pytest.raises(InputError, match="must be"):
        CGROUPFS.host_application(HostApplication(name="a", cgroup_path=path))
