"""Expected results of specs: those that are not selected, and those that fail, with reasons."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.originals.suites import Spec


@dataclass(frozen=True, slots=True)
class Known:
    """Specs whose names match ``pattern`` do not pass, for this reason."""

    pattern: str
    reason: str

    def names(self, spec: Spec) -> bool:
        """Return whether it is about this spec."""
        return re.search(self.pattern, spec.name) is not None


#: Left out by the command line of the suite.
NOT_RUN: dict[str, tuple[Known, ...]] = {
    "claims": (Known("device plugin", "needs the image of a device plugin, from a registry"),),
    "devices": (),
    "koordinator": (Known(r"DeviceShare|Preemption with device", "run as ``devices``"),),
    "kubernetes": (),
}

_NO_SUCH_MESSAGE = (
    'waits for "NUMA Topology affinity"; since #2305 the original says "Unsatisfied NUMA cpu" '
    'or "Unaligned NUMA Hint cause ...", as we do'
)

#: Run, and known to fail: with the original, too.
FAILING: dict[str, tuple[Known, ...]] = {
    "claims": (),
    "devices": (
        Known(
            "only one Pod of all matched reservation",
            "policy Default lends what is left, be it nothing: the others count as users",
        ),
        Known("and 3 Pods with 40% matched reservation", "likewise the third"),
        Known(
            "Restricted Policy, reserves 50%",
            "the other pod gets what the node has besides: the second GPU",
        ),
    ),
    "koordinator": (
        Known(
            "NUMA topology is set on pod",
            "its ReplicaSet leaves out the annotation of its pods (scheduling/helper.go)",
        ),
        Known("SingleNUMANode with 2 NUMA Nodes", _NO_SUCH_MESSAGE),
        Known("failed to scheduling LSR? Pod", _NO_SUCH_MESSAGE),
        Known(
            "with Restricted policy, reserves 4Core8Gi|PodTopologySpread",
            "its own CI leaves them out: owners get what the node has besides, and count as users",
        ),
    ),
    "kubernetes": (),
}


def surprises(suite: str, specs: Sequence[Spec]) -> list[str]:
    """Return what came otherwise than it is known here, a line each."""
    known = FAILING[suite]
    lines = []
    for spec in specs:
        expected = next((it for it in known if it.names(spec)), None)
        if spec.state in {"passed", "skipped"}:
            if expected is not None and spec.state == "passed":
                lines.append(f"passes now, and is known to fail: {spec.name}")
        elif expected is None:
            lines.append(f"{spec.state}: {spec.name}\n    {spec.why}")
    return lines
