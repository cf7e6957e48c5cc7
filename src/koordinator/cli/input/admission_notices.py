"""What an API server's admission would do about pods that are given as manifests, and is not done.

Pods that a cluster has stored carry a uid: they have been admitted there, and are not looked at.
"""

from collections.abc import Callable, Iterator, Sequence

from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.meta import KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.api.selectors import matches
from koordinator.cluster.memory.admission import SYSTEM_PRIORITY_CLASSES
from koordinator.scheduler.ingest import is_over

SHOWN = 3  # names in a sentence


def admission_notices(objects: Sequence[KubeObject]) -> list[str]:
    """Return a sentence for each way in which pods are used as admission would not let them be."""
    pods = [obj for obj in objects if isinstance(obj, Pod) and _is_new(obj)]
    if not pods:
        return []
    return [*_of_profiles(objects, pods), *_of_refusals(objects, pods)]


def _is_new(pod: Pod) -> bool:
    return not pod.metadata.uid and not pod.spec.node_name and not is_over(pod)


def _of_profiles(objects: Sequence[KubeObject], pods: Sequence[Pod]) -> Iterator[str]:
    labels = {obj.metadata.name: obj.metadata.labels for obj in objects if _is_namespace(obj)}
    for profile in objects:
        if not isinstance(profile, ClusterColocationProfile):
            continue
        spec = profile.spec
        changed = [
            pod
            for pod in pods
            if (spec.selector is None or matches(spec.selector, pod.metadata.labels))
            and (
                spec.namespace_selector is None
                or matches(spec.namespace_selector, labels.get(pod.metadata.namespace, {}))
            )
        ]
        if changed:
            yield (
                f"ClusterColocationProfile {profile.metadata.name} is not applied: koord-manager's "
                f"webhook would change {_listed(changed)}; koord manager --once prints them changed"
            )


def _is_namespace(obj: KubeObject) -> bool:
    return isinstance(obj, Namespace)


def _of_refusals(objects: Sequence[KubeObject], pods: Sequence[Pod]) -> Iterator[str]:
    classes = [obj for obj in objects if isinstance(obj, PriorityClass)]
    values = {one.metadata.name: one.value for one in (*SYSTEM_PRIORITY_CLASSES, *classes)}
    defaults = [one for one in classes if one.global_default]
    if len(defaults) > 1:
        names = ", ".join(one.metadata.name for one in defaults)
        yield f"an API server lets one PriorityClass be globalDefault, here are several: {names}"
    default = min((one.value for one in defaults), default=0)

    def has_other_priority(pod: Pod) -> bool:
        name, priority = pod.spec.priority_class_name, pod.spec.priority
        expected = values.get(name) if name else default
        return priority is not None and expected is not None and priority != expected

    checks: tuple[tuple[str, Callable[[Pod], bool]], ...] = (
        ("spec.priority differs from that of the PriorityClass", has_other_priority),
        (
            "spec.overhead is set without a runtimeClassName",
            lambda pod: bool(pod.spec.overhead) and not pod.spec.runtime_class_name,
        ),
        (
            "a container has no image",
            lambda pod: any(
                not one.image for one in (*pod.spec.init_containers, *pod.spec.containers)
            ),
        ),
    )
    for problem, is_refused in checks:
        refused = [pod for pod in pods if is_refused(pod)]
        if refused:
            yield f"an API server would refuse {_listed(refused)}: {problem}; used as written here"


def _listed(pods: Sequence[Pod]) -> str:
    names = ", ".join(pod.key for pod in pods[:SHOWN])
    more = ", …" if len(pods) > SHOWN else ""
    return f"{len(pods)} pod{'' if len(pods) == 1 else 's'} ({names}{more})"
