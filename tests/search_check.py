"""Check of the site's search: questions of operators find the pages that answer them.

``python -m tests.search_check`` asks the search of ``build/site`` and prints each question whose
page is not among the first results; it exits 1 if there is one.  ``make docs`` runs it.  Node runs
the scripts of the site; without node the check is left out.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT = Path(__file__).parent.parent
FIRST = 5  # results that a reader looks at

#: Questions, and the page that answers each, or the beginning of the names of several.
QUESTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "which label sets the QoS class of a pod?": "reference/generated/labels",
        "what does koordinator.sh/priority-class mean?": "reference/generated/labels",
        "which annotation has the allocated devices?": "reference/generated/annotations",
        "which annotation binds a pod to CPUs?": "how-to/bind-cpus",
        "default of cpuSuppressThresholdPercent": "reference/generated/slo-controller-config",
        "default of --kube-api-qps": "reference/generated/commands/",
        "how do I change the log level?": "reference/generated/commands/",
        "condition with reason SchedulingGated": "reference/generated/conditions",
        "what does the event evictPodFail mean?": "reference/generated/event-reasons",
        "which metric shows pending pods?": "reference/generated/metrics",
        "which metric counts evictions by the node agent?": "reference/generated/metrics",
        "how do I share a GPU between pods?": "how-to/share-a-gpu",
        "how do I request half of a GPU?": "tutorials/gpu-shares",
        "default ttl of a PodMigrationJob": "reference/generated/resources/podmigrationjob",
        "how do I stop the descheduler from evicting a pod?": "how-to/deschedule",
        "how do I run the descheduler as a dry run?": "how-to/deschedule",
        "why is my pod pending?": "how-to/explain-pods",
        "how do I roll back to the original Koordinator?": "how-to/move-from-the-original",
        "is my values.yaml of the original chart accepted?": "how-to/move-from-the-original",
        "which Kubernetes versions are supported?": "support",
        "how do I build the image for arm64?": "how-to/install",
        "which rights does koordlet need?": "reference/generated/rights",
        "how does Prometheus authenticate to scrape metrics?": "how-to/guard-the-ports",
        "which port serves metrics of koord-manager?": "how-to/guard-the-ports",
        "what does KoordletIsDown mean?": "runbooks/",
        "gang waits for members": "concepts/gangs",
        "how long does a gang wait?": "reference/generated/annotations",
        "minMember of a PodGroup": "reference/generated/resources/podgroup",
        "how do I overcommit CPU for batch pods?": "concepts/batch-and-mid",
        "cpuReclaimThresholdPercent": "reference/generated/slo-controller-config",
        "which feature gate turns on CPUBurst?": "reference/generated/feature-gates",
        "how do I limit a team to a quota?": "tutorials/quotas",
        "how does a quota borrow from another quota?": "concepts/quotas",
        "what does the annotation shared-weight do?": "reference/generated/annotations",
        "how do I reserve capacity for a future pod?": "concepts/reservations",
        "how do I migrate a pod to another node?": "how-to/move-pods",
        "how do I trace a pod with OpenTelemetry?": "how-to/trace-pods",
        "koord doctor reports a problem with webhooks": "how-to/check-an-installation",
        "how do I run Spark on batch resources?": "how-to/run-spark",
        "how do I write a plugin?": "how-to/add-a-plugin",
        "where is the audit trail written?": "how-to/audit",
        "environment variable for a traceback": "reference/generated/environment-variables",
        "how do I align a pod to one NUMA node?": "how-to/bind-cpus",
        "call a scheduler extender": "how-to/call-extenders",
        "memory eviction threshold of best-effort pods": "how-to/run-the-node-agent",
        "what happens when the leader dies?": "how-to/survive-failures",
        "default of scheduler.replicas in the chart": "reference/generated/chart-values",
        "arguments of LoadAwareScheduling": "reference/generated/scheduler-plugins",
        "arguments of LowNodeLoad": "reference/generated/descheduler-plugins",
        "koordinator.sh/gpu-memory-ratio": "reference/generated/resource-names",
    }
)


def results(site: Path, questions: Sequence[str]) -> list[list[str]]:
    """Return the pages that a site's search finds for each question, the best first."""
    node = shutil.which("node") or "node"
    script = Path(__file__).with_suffix(".js")
    command = [node, str(script), str(site)]
    done = subprocess.run(
        command, input=json.dumps(questions), capture_output=True, text=True, check=True
    )
    pages: list[list[str]] = json.loads(done.stdout)
    return pages


def unanswered(site: Path) -> list[str]:
    """Return a line per question without its page among the first results."""
    return [
        f"{question!r}: {page} is not among {', '.join(pages[:FIRST]) or 'no results'}"
        for (question, page), pages in zip(
            QUESTIONS.items(), results(site, list(QUESTIONS)), strict=True
        )
        if not any(each.startswith(page) for each in pages[:FIRST])
    ]


def main() -> None:
    """Check the site that ``make docs`` has built."""
    if shutil.which("node") is None:
        sys.stdout.write("questions to the search: left out, node is not installed\n")
        return
    lines = unanswered(ROOT / "build/site")
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
