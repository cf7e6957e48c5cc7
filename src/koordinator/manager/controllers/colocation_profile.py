"""Colocation profiles for pods that were created before them: labels, annotations and a patch.

As in the original, priority class, scheduler and resources stay unchanged.  Unlike there, the
random number of a pod is the same in every reconciliation, and a suffix that a label already has is
not appended again.
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
    """Return whether the profile applies to existing pods; ``by_default``: without the label."""
    if profile.metadata.deletion_timestamp is not None:
        return False
    return by_default or profile.metadata.labels.get(CONTROLLER_MANAGED) == "true"


def chosen_pods(
    profile: ClusterColocationProfile, pods: Iterable[Pod], namespaces: Mapping[str, Namespace]
) -> Iterator[Pod]:
    """Yield the pods that a profile selects; a profile without a selector selects none.

    Raises InputError for an invalid selector, Denial for an invalid probability.
    """
    spec = profile.spec
    if spec.selector is None:
        return
    for pod in pods:
        meta = pod.metadata
        if (
            matches(spec.selector, meta.labels)
            and _picks(spec.namespace_selector, namespaces.get(meta.namespace))
            and not is_left_out(profile, partial(_bucket, profile.metadata.name, meta.uid))
        ):
            yield pod


def pod_patch(profile: ClusterColocationProfile, pod: Pod) -> Patch | None:
    """Return the patch by which a profile changes a pod; None if it changes nothing.

    Raises InputError for a patch that can't be applied.
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


def _bucket(profile: str, uid: str) -> int:
    """Return the hash bucket 0..99 of a profile and a pod."""
    digest = sha256(f"{profile}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _PERCENTS
