"""Colocation profiles for pods that were created before them: labels, annotations and a patch.

Priority class and scheduler are left as they are, and so are the resources: so the original.
Unlike there, the lot of a pod stays the same however often it is looked at, and a suffix that a
label ends with already is not appended again.
Source: koordinator pkg/controller/colocationprofile.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256

from msgspec.structs import replace

from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.codec import to_manifest
from koordinator.api.labels import CONTROLLER_MANAGED
from koordinator.api.meta import LabelSelector
from koordinator.api.namespace import Namespace
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches
from koordinator.api.strategic_merge import strategic_merge
from koordinator.manager.admission.profiles import is_left_out, relabelled, with_entries
from koordinator.manager.writes import Patch, difference

_PERCENTS = 100


def is_managed(profile: ClusterColocationProfile, *, by_default: bool) -> bool:
    """Return whether pods that exist are changed, too; ``by_default``: without the label."""
    if profile.metadata.deletion_timestamp is not None:
        return False
    return by_default or profile.metadata.labels.get(CONTROLLER_MANAGED) == "true"


def chosen_pods(
    profile: ClusterColocationProfile, pods: Iterable[Pod], namespaces: Mapping[str, Namespace]
) -> Iterator[Pod]:
    """Yield the pods that a profile is for; one without a selector is for none.

    Raises InputError for a selector that can't be read, Denial for such a probability.
    """
    spec = profile.spec
    if spec.selector is None:
        return
    for pod in pods:
        meta = pod.metadata
        if (
            matches(spec.selector, meta.labels)
            and _picks(spec.namespace_selector, namespaces.get(meta.namespace))
            and not is_left_out(profile, partial(_lot, profile.metadata.name, meta.uid))
        ):
            yield pod


def pod_patch(profile: ClusterColocationProfile, pod: Pod) -> Patch | None:
    """Return what a profile changes of a pod, None if nothing.

    Raises InputError for a patch that can't be used.
    """
    meta, spec = pod.metadata, profile.spec
    suffixes = {
        key: suffix
        for key, suffix in spec.label_suffixes.items()
        if not meta.labels.get(key, "").endswith(suffix)
    }
    labels, annotations = relabelled(
        replace(spec, label_suffixes=suffixes), meta.labels, meta.annotations
    )
    before = to_manifest(pod)
    after = with_entries(with_entries(before, "labels", labels), "annotations", annotations)
    if spec.patch:
        after = strategic_merge(after, spec.patch)
    change = difference(before, after)
    if not change:
        return None
    body = {**change, "metadata": {**change.get("metadata", {}), "uid": meta.uid}}
    return Patch(Pod, meta.name, body, meta.namespace)


def _picks(selector: LabelSelector | None, namespace: Namespace | None) -> bool:
    if selector is None or selector == LabelSelector():
        return True
    return namespace is not None and matches(selector, namespace.metadata.labels)


def _lot(profile: str, uid: str) -> int:
    """Return 0..99: the same for a profile and a pod whenever it is drawn."""
    digest = sha256(f"{profile}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _PERCENTS
