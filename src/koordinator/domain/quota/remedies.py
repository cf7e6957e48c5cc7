"""What would make room in a quota for a pod that it refuses."""

from koordinator.domain.quota.admission import AdmissionRules, limit_of
from koordinator.domain.quota.amounts import Amounts, exceeded, named_by, plus, to_text
from koordinator.domain.quota.pods import QuotaPod
from koordinator.domain.quota.tree import QuotaTree


def what_helps(tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules) -> str:
    """Return what has to change so that the pod is let in; empty if it is.

    The amounts are what lacks now; a limit that is shared may have to be raised by more.
    """
    node = tree.node(name)
    request = node.counted(pod)
    steps = [_at(tree, name, plus(node.used, request), rules)]
    if not pod.is_preemptible:
        short = _short(plus(node.non_preemptible_used, request), node.min)
        if short:
            steps.append(
                f"raise the min of quota {name} by {to_text(short)}, "
                "or let the pod be preemptible: such pods are not held to the min"
            )
    for ancestor in tree.path(name)[1:] if rules.checks_parents else ():
        wanted = named_by(plus(tree.node(ancestor).used, request), request)
        steps.append(_at(tree, ancestor, wanted, rules))
    return "; and ".join(filter(None, steps))


def _at(tree: QuotaTree, name: str, wanted: Amounts, rules: AdmissionRules) -> str:
    """Return what one quota needs to let so much be used."""
    most = tree.node(name).max
    short, short_of_max = _short(wanted, limit_of(tree, name, rules)), _short(wanted, most)
    if not short:
        return ""
    ends = f"pods of quota {name} that use {to_text(short)} end"
    if short_of_max:
        return f"raise the max of quota {name} by {to_text(short_of_max)}, or wait until {ends}"
    return (
        f"quota {name} may use less than its max now, since others use the rest: "
        f"raise its min by {to_text(short)}, or wait until {ends} or the others give back"
    )


def _short(wanted: Amounts, limit: Amounts) -> dict[str, int]:
    return {name: wanted[name] - limit[name] for name in exceeded(wanted, limit)}
