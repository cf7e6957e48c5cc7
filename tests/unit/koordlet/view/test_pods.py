"""Place of a pod's cgroup, which only the kubelet determines."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.nodes import LAYOUT, pod

from koordinator.api.meta import OwnerReference
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError
from koordinator.koordlet.view.pods import pod_view, pods_of_node, static_uid

HASH = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
NODE = OwnerReference(api_version="v1", kind="Node", name="n1", uid="n", controller=True)


def mirror(name: str, uid: str = HASH, owner: OwnerReference | None = NODE, **changes: str) -> Pod:
    """Return a pod as the kubelet shows one that it runs from a file."""
    stated = {"hash": uid, "mirror": uid, "source": "file", "seen": "2026-01-01"} | changes
    annotations = {f"kubernetes.io/config.{key}": text for key, text in stated.items()}
    return owned(pod(name, annotations=annotations), owner)


def owned(made: Pod, owner: OwnerReference | None) -> Pod:
    """Return the pod with an owner."""
    references = (owner,) if owner is not None else ()
    return replace(made, metadata=replace(made.metadata, owner_references=references))


def folder(made: Pod) -> str:
    """Return the cgroup of a pod that is alone."""
    (view,) = pods_of_node([pod_view(made, LAYOUT)], LAYOUT)
    assert all(c.folder.startswith(f"{view.folder}/") for c in view.containers)
    return view.folder


def test_cgroup_of_a_static_pod_follows_its_mirror() -> None:
    """The API server gives its mirror another UID."""
    assert folder(mirror("etcd")) == f"kubepods/besteffort/pod{HASH}"
    assert folder(mirror("etcd", source="http")) == f"kubepods/besteffort/pod{HASH}"
    own = "11111111-2222-3333-4444-555555555555"  # of a manifest that states one
    assert folder(mirror("etcd", own)) == f"kubepods/besteffort/pod{own}"


@pytest.mark.parametrize(
    "changes",
    [
        {"mirror": ""},
        {"mirror": "0" * 32},
        {"source": "api"},
        {"source": ""},
        {"owner": None},
        {"owner": replace(NODE, name="n2")},
        {"owner": replace(NODE, kind="ReplicaSet")},
        {"owner": replace(NODE, controller=None)},
        {"uid": ""},
        {"uid": "uid-b"},
        {"uid": "0" * 65},
        {"uid": "../../system"},
        {"uid": f"{HASH}/../../../../system"},
        {"uid": f"{HASH}\n"},
        {"uid": ".."},
        {"uid": "ABCDEF"},
    ],
)
def test_only_static_pods_may_name_a_cgroup(changes: dict[str, Any]) -> None:
    """The cgroup of a pod that is no valid mirror of this node follows its UID."""
    assert static_uid(mirror("a", **changes)) is None
    assert folder(mirror("a", **changes)) == "kubepods/besteffort/poduid-a"


def test_forged_mirror_pod_gets_no_cgroup_of_another_pod() -> None:
    """A client that may create pods can write any annotation and owner; ownership stays."""
    uid = "11111111-2222-3333-4444-555555555555"
    victim = pod("b")
    victim = replace(victim, metadata=replace(victim.metadata, uid=uid))
    for forged in (mirror("a", uid), mirror("z", uid)):
        views = [pod_view(made, LAYOUT) for made in (forged, victim)]
        folders = {view.key: view.folder for view in pods_of_node(views, LAYOUT)}
        assert folders == {
            "default/b": f"kubepods/besteffort/pod{uid}",
            forged.key: f"kubepods/besteffort/poduid-{forged.metadata.name}",
        }


def test_of_two_mirrors_of_one_static_pod_the_older_one_is_believed() -> None:
    """The kubelet made its own first."""
    real, forged = mirror("z"), mirror("a")
    later = replace(
        forged.metadata,
        creation_timestamp=pod("x", created="2026-01-01T00:00:00Z").metadata.creation_timestamp,
    )
    views = [pod_view(replace(forged, metadata=later), LAYOUT), pod_view(real, LAYOUT)]
    folders = {view.key: view.folder for view in pods_of_node(views, LAYOUT)}

    assert list(folders) == ["default/a", "default/z"]
    assert folders["default/z"] == f"kubepods/besteffort/pod{HASH}"
    assert folders["default/a"] == "kubepods/besteffort/poduid-a"


@pytest.mark.parametrize(
    "container", ["containerd://..", "containerd://.", "containerd://a/b", "x"]
)
def test_a_container_without_a_name_of_its_own_has_no_cgroup(container: str) -> None:
    """A container whose name is not its own is omitted; the pod itself is managed."""
    made = pod("a", containerStatuses=[{"name": "c0", "containerID": container}])
    assert pod_view(made, LAYOUT).containers == ()


@pytest.mark.parametrize("uid", ["", "..", "../b", "a\nb"])
def test_a_pod_without_a_uid_is_refused(uid: str) -> None:
    """No API server makes one."""
    made = pod("a")
    made = replace(made, metadata=replace(made.metadata, uid=uid))
    with pytest.raises(InputError, match=r"metadata\.uid"):
        pod_view(made, LAYOUT)
