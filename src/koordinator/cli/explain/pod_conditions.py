"""Why pods wait as their scheduler wrote it into them: for users who may not read the cluster."""

from collections.abc import Iterable, Sequence

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError
from koordinator.scheduler.explain import CauseReport, Explanation
from koordinator.scheduler.explain.sentences import sentence
from koordinator.scheduler.ingest import is_over

SCHEDULED = "PodScheduled"
UNSEEN = "no scheduler has written anything about it yet"
LIMITED = (
    "this user may not read {}: told is what the scheduler wrote into the pods, and nothing is "
    "tried"
)


def explain_by_conditions(
    objects: Sequence[KubeObject], keys: Sequence[str] = ()
) -> list[Explanation]:
    """Explain pods by their conditions; without keys all that wait.

    Raises InputError for a key that no pod has.
    """
    pods = {obj.key: obj for obj in objects if isinstance(obj, Pod)}
    unknown = [key for key in keys if key not in pods]
    if unknown:
        known = ", ".join(sorted(pods)[:10]) or "nothing: there are no pods"
        problem = f"there is no pod {unknown[0]}, or it may not be read; must be one of {known}"
        raise InputError(problem, source="explain pod")
    wanted = [pods[key] for key in keys] if keys else _waiting(pods.values())
    return [_explained(pod) for pod in wanted]


def _waiting(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if not pod.spec.node_name and not is_over(pod)]


def _explained(pod: Pod) -> Explanation:
    if is_over(pod):
        summary = f"it has ended: {pod.status.phase}"
        return Explanation(pod=pod.key, verdict="ended", summary=summary, node=pod.spec.node_name)
    if pod.spec.node_name:
        summary = f"it runs on {pod.spec.node_name}"
        return Explanation(pod=pod.key, verdict="placed", summary=summary, node=pod.spec.node_name)
    said = next((c for c in pod.status.conditions if c.type == SCHEDULED), None)
    message = (said.message or said.reason) if said is not None else ""
    closed = " ".join(gate.name for gate in pod.spec.scheduling_gates)
    if closed:
        message = f"waiting for scheduling gates: {closed}"
    reason = message or UNSEEN
    cause = CauseReport(plugin="", reason=reason, sentence=sentence(reason))
    return Explanation(
        pod=pod.key, verdict="waits", summary=reason, causes=(cause,), last_message=message
    )
