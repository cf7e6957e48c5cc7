"""Pods that name foreign cgroups on a real node: the agent writes to their own cgroups only.

A pod's author can write any annotation, including the one with which the kubelet marks the cgroup
of a static pod.
"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.node.conftest import StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import CGROUPS, NAME, Manifest, pod
from tests.e2e.waiting import eventually

from koordinator.api.annotations.pod_qos import EXTENDED_RESOURCE_SPEC
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion, cgroup_path, parse_number

HASH, MIRROR, SOURCE = (f"kubernetes.io/config.{name}" for name in ("hash", "mirror", "source"))
VERSION = CgroupVersion.V2 if (CGROUPS / "cgroup.controllers").exists() else CgroupVersion.V1
TIER = "kubepods/besteffort"
MEMORY = 64 << 20  # bytes
FOREIGN = "koordinator-e2e-foreign"  # a cgroup beside that of all pods, such as system.slice
PRECIOUS = "67108865\n"  # in a file of the node
_AMOUNTS = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": str(MEMORY)}
_LIVING = (CgroupFile.PROCS, CgroupFile.PERF_PROCS, CgroupFile.TASKS, CgroupFile.CPU_USAGE)
_SETTINGS = tuple(file for file in CgroupFile if file not in _LIVING)


@pytest.mark.usefixtures("foreign")
def test_annotations_of_tenants_set_nothing_outside_of_their_own_cgroup(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent
) -> None:
    """Up the tree, at all pods, at a neighbour, by other ways to write it: only their own is set.

    Some say they were the mirrors of static pods; the kubelet deletes these, but not at once.
    """
    (neighbour,) = node.run(pod("victim"))
    victim = neighbour["metadata"]["uid"]
    hashes = {
        "foreign": f"{{own}}/../../../{FOREIGN}",
        "all-pods": "{own}/../../../kubepods",
        "tier": "{own}/../../besteffort",
        "neighbour": victim,
        "beside": f"{{own}}/../pod{victim}",
        "absolute": f"/../../../../sys/fs/cgroup/memory/{FOREIGN}",
    }
    made = dict(zip(hashes, node.run(*(batch(name) for name in hashes)), strict=True))
    for name, text in hashes.items():
        annotate(controlplane, made[name], {HASH: text.format(own=made[name]["metadata"]["uid"])})
    (honest,) = node.run(batch("honest"))
    uids = [one["metadata"]["uid"] for one in (honest, *made.values())]
    before = settings(*uids)

    start_agent()
    for name, text in hashes.items():
        create(controlplane, mirror(f"mirror-{name}", text.format(own=victim)))

    eventually(lambda: memory_limit(uids[0]) == MEMORY, 60)
    eventually(lambda: not mirrors(controlplane), 60)
    assert settings(*uids) == before
    eventually(lambda: all(memory_limit(uid) == MEMORY for uid in uids), 60)


def test_files_of_tenants_are_no_cgroups(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> None:
    """A link in the pod's volume to a file of the node is not followed; a pipe does not block."""
    precious = tmp_path / "precious"
    precious.write_text(PRECIOUS)
    mount = {"volumeMounts": [{"name": "own", "mountPath": "/own"}]}
    (made,) = node.run(batch("planter", container=mount, volumes=[{"name": "own", "emptyDir": {}}]))
    uid = made["metadata"]["uid"]
    below = f"pods/{uid}/volumes/kubernetes.io~empty-dir/own"
    links = [(file, f"/own/{file}") for file in ("memory.limit_in_bytes", "memory.max", "cpu.max")]
    for _, path in links:
        node.exec(made, "ln", "-s", str(precious), path)
    for file in ("cpu.shares", "cpu.weight", "cpu.cfs_quota_us"):
        node.exec(made, "mkfifo", f"/own/{file}")
    up = "../" * (len(CGROUPS.parts) + TIER.count("/") + 3)
    planted = node.kubelet_folder / below
    assert stat.S_ISFIFO((planted / "cpu.shares").stat().st_mode)
    assert (planted / "memory.max").read_text() == PRECIOUS
    annotate(controlplane, made, {HASH: f"{uid}/{up}{planted.relative_to('/')}"})
    (other,) = node.run(batch("other"))

    start_agent()

    eventually(lambda: memory_limit(other["metadata"]["uid"]) == MEMORY, 60)
    assert precious.read_text() == PRECIOUS
    eventually(lambda: memory_limit(uid) == MEMORY, 60)


def test_static_pod_is_found_by_its_mirror(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent
) -> None:
    """Only what the kubelet wrote is used, not the manifest."""
    folder = node.state / "etc/static"
    folder.mkdir(exist_ok=True)
    manifest = batch("static", annotations={HASH: "../../.."})
    manifest["metadata"]["namespace"] = "default"
    (folder / "static.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **manifest})
    )
    node.stop_kubelet()
    node.start_kubelet({"staticPodPath": str(folder)})
    try:
        (seen,) = eventually(lambda: mirrors(controlplane), 60)
        named = seen["metadata"]["annotations"][HASH]
        assert named not in {seen["metadata"]["uid"], "../../.."}
        node.wait_for(seen, "Running")

        start_agent()

        eventually(lambda: memory_limit(named) == MEMORY, 60)
    finally:
        (folder / "static.yaml").unlink()
        eventually(lambda: not mirrors(controlplane), 60)


@pytest.fixture
def foreign() -> Iterator[None]:
    """Make a cgroup that belongs to no pod."""
    files = (CgroupFile.CPU_SHARES, CgroupFile.MEMORY_LIMIT)
    folders = {place(file, FOREIGN).parent for file in files}
    for folder in folders:
        folder.mkdir(exist_ok=True)
    yield
    for folder in folders:
        folder.rmdir()


def batch(name: str, **more: Any) -> Manifest:
    """Return a pod whose memory the agent limits, since the kubelet does not."""
    main = {"requests": _AMOUNTS, "limits": _AMOUNTS}
    spec = EXTENDED_RESOURCE_SPEC.key, json.dumps({"containers": {"main": main}})
    annotations = dict([spec]) | more.pop("annotations", {})
    labels = {"koordinator.sh/qosClass": "BE"}
    return pod(name, labels=labels, annotations=annotations, **more)


def mirror(name: str, text: str) -> Manifest:
    """Return a pod with all properties of a static pod's mirror."""
    made = batch(name, annotations={HASH: text, MIRROR: text, SOURCE: "file"})
    owner = {"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": name, "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def create(controlplane: ControlPlane, manifest: Manifest) -> None:
    """Create a pod that need not run."""
    controlplane.api.request("POST", "/api/v1/namespaces/default/pods", manifest)


def annotate(controlplane: ControlPlane, made: Manifest, annotations: dict[str, str]) -> None:
    """Change annotations of a pod, as its author may."""
    meta = made["metadata"]
    controlplane.api.request(
        "PATCH",
        f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}",
        {"metadata": {"annotations": annotations}},
        content_type="application/merge-patch+json",
    )


def mirrors(controlplane: ControlPlane) -> list[Manifest]:
    """Return the pods that say they were mirrors."""
    pods: list[Manifest] = controlplane.api.request("GET", "/api/v1/namespaces/default/pods")[
        "items"
    ]
    return [one for one in pods if MIRROR in one["metadata"].get("annotations", {})]


def place(file: CgroupFile, folder: str) -> Path:
    """Return where the machine has a file of a cgroup."""
    below = cgroup_path(file, folder, VERSION)
    assert below is not None
    return CGROUPS / below


def memory_limit(uid: str) -> int:
    """Return the bytes that a pod may take; -1 if there is no limit."""
    text = place(CgroupFile.MEMORY_LIMIT, f"{TIER}/pod{uid}").read_text()
    return parse_number(CgroupFile.MEMORY_LIMIT, text, VERSION)


def settings(*but: str) -> dict[Path, str]:
    """Return the settings of the foreign cgroup and of pods, except pods with these UIDs."""
    contents = {}
    for file in _SETTINGS:
        for top in ("kubepods", FOREIGN):
            below = cgroup_path(file, top, VERSION)
            path = CGROUPS / below if below is not None else None
            for each in path.parent.rglob(path.name) if path is not None else ():
                own = any(f"/pod{uid}/" in str(each) for uid in but)
                if not own and each.stat().st_mode & stat.S_IWUSR:
                    contents[each] = each.read_text()
    return contents
