"""Remedies that change the pod: tolerations, selectors, amounts.  Each is tried."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.pod import Pod
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.diagnosis import spoken
from koordinator.scheduler.explain.explanation import Remedy
from koordinator.scheduler.explain.obstacles import Way
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.rules.smaller_pods import asking_at_most

TRIED = 3  # nodes per set of causes
MOST = 2  # remedies, nearest nodes first
CANDIDATES = 8  # amounts tried on one node


def changed_pods(question: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    """Yield changes of the pod with which a node rejected for such causes would take it."""
    found: dict[str, Remedy] = {}
    for remedy in _by_ways(question, ways):
        found.setdefault(remedy.text.rpartition(": ")[0], remedy)
        if len(found) == MOST:
            break
    yield from found.values()


def changed_for_refusals(question: Question) -> Iterator[Remedy]:
    """Yield changes of the pod that satisfy the plugin that refuses it everywhere."""
    refusals, found = question.found.refusals, question.found
    if len(refusals) != 1:
        return
    accepting = found.rows[~found.rejected]
    for plugin in refusals[0].plugins:
        seen: set[str] = set()
        for row in question.nearest(accepting, TRIED):
            for text, pod in question.pod_remedies(plugin, row, question.pod):
                if text not in seen and question.takes(pod, row, {plugin}):
                    seen.add(text)
                    yield _remedy(question, text, row, enough=True)


def smaller_requests(question: Question) -> Iterator[Remedy]:
    """Yield smaller requests with which a node takes the pod, if partitioned amounts are short."""
    for way in question.found.ways:
        plugins = sorted({cause.plugin for cause in way})
        for row in question.nearest(question.found.only(way), TRIED):
            offers = [question.reduced_requests(plugin, row) for plugin in plugins]
            if not all(offers):
                continue
            for amounts in _merged(offers):
                pod = smaller_pod(question.pod, amounts)
                if pod is not None and question.takes(pod, row, plugins):
                    yield smaller_request_remedy(question, pod, amounts, row)
                    return


def smaller_request_remedy(
    question: Question, pod: Pod, amounts: Mapping[str, int], row: int
) -> Remedy:
    """Return the remedy of requesting at most these amounts, as ``pod`` does."""
    wanted = pod_requests(question.pod.spec)
    listed = " and ".join(
        f"{spoken(name, n)} of {name}" for name, n in amounts.items() if n < wanted.get(name, 0)
    )
    node = question.state.nodes.names[row]
    text = f"request at most {listed}: {node} has that free"
    return Remedy(kind="ask-less", text=text, sufficient=question.starts(pod, row), nodes=(node,))


def smaller_pod(pod: Pod, amounts: Mapping[str, int]) -> Pod | None:
    """Return the pod with at most these requests; None if impossible or not smaller."""
    spec = asking_at_most(pod.spec, amounts)
    return None if spec is None or spec == pod.spec else replace(pod, spec=spec)


def _by_ways(question: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    for way in sorted(ways, key=len):
        plugins = sorted({cause.plugin for cause in way})
        for row in question.nearest(question.found.only(way), TRIED):
            for text, pod in _changes(question, plugins, row):
                if question.takes(pod, row, plugins):
                    yield _remedy(question, text, row, enough=question.starts(pod, row))


def _changes(question: Question, plugins: Sequence[str], row: int) -> list[tuple[str, Pod]]:
    """Return changes that all plugins accept, each on top of the previous one."""
    found = [("", question.pod)]
    for plugin in plugins:
        found = [
            (f"{before} and {text}" if before else text, changed)
            for before, pod in found
            for text, changed in question.pod_remedies(plugin, row, pod)
        ]
    return found


def _remedy(question: Question, text: str, row: int, *, enough: bool) -> Remedy:
    node = question.state.nodes.names[row]
    text = f"{text}: {node} takes it then"
    return Remedy(kind="change-pod", text=text, sufficient=enough, nodes=(node,))


def _merged(offers: Sequence[list[dict[str, int]]]) -> Iterator[dict[str, int]]:
    """Yield amounts that all offers allow, largest first."""
    for index in range(min(max(map(len, offers)), CANDIDATES)):
        amounts: dict[str, int] = {}
        for offer in offers:
            for name, most in offer[min(index, len(offer) - 1)].items():
                amounts[name] = min(amounts.get(name, most), most)
        yield amounts
