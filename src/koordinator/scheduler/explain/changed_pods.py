"""What of the pod could be another way: tolerations, selectors, amounts.  All of it is tried."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.pod import Pod
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.diagnosis import spoken
from koordinator.scheduler.explain.explanation import Remedy
from koordinator.scheduler.explain.obstacles import Way
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.rules.smaller_pods import asking_at_most

TRIED = 3  # nodes for each way out
MOST = 2  # such remedies: the first are the nearest
CANDIDATES = 8  # amounts that are tried on one node


def changed_pods(asked: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    """Yield changes of the pod with which a node would take it that lies on one of these ways."""
    found: dict[str, Remedy] = {}
    for remedy in _by_ways(asked, ways):
        found.setdefault(remedy.text.rpartition(": ")[0], remedy)
        if len(found) == MOST:
            break
    yield from found.values()


def changed_for_refusals(asked: Question) -> Iterator[Remedy]:
    """Yield changes with which the plugin that refuses the pod everywhere would not."""
    refusals, found = asked.found.refusals, asked.found
    if len(refusals) != 1:
        return
    accepting = found.rows[~found.rejected]
    for plugin in refusals[0].plugins:
        told: set[str] = set()
        for row in asked.nearest(accepting, TRIED):
            for text, pod in asked.pod_remedies(plugin, row, asked.pod):
                if text not in told and asked.takes(pod, row, {plugin}):
                    told.add(text)
                    yield _remedy(asked, text, row, enough=True)


def asking_less(asked: Question) -> Iterator[Remedy]:
    """Look for a node that would take the pod if it asked for less, where parts of nodes lack."""
    for way in asked.found.ways:
        plugins = sorted({cause.plugin for cause in way})
        for row in asked.nearest(asked.found.only(way), TRIED):
            offers = [asked.reduced_requests(plugin, row) for plugin in plugins]
            if not all(offers):
                continue
            for amounts in _merged(offers):
                pod = smaller_pod(asked.pod, amounts)
                if pod is not None and asked.takes(pod, row, plugins):
                    yield told_as_less(asked, pod, amounts, row)
                    return


def told_as_less(asked: Question, pod: Pod, amounts: Mapping[str, int], row: int) -> Remedy:
    """Return the remedy that asks for at most these amounts, as ``pod`` does."""
    wanted = pod_requests(asked.pod.spec)
    listed = " and ".join(
        f"{spoken(name, n)} of {name}" for name, n in amounts.items() if n < wanted.get(name, 0)
    )
    node = asked.state.nodes.names[row]
    text = f"ask for at most {listed}: {node} has that free"
    return Remedy(kind="ask-less", text=text, sufficient=asked.starts(pod, row), nodes=(node,))


def smaller_pod(pod: Pod, amounts: Mapping[str, int]) -> Pod | None:
    """Return the pod asking for at most these amounts; None: not possible, or no less."""
    spec = asking_at_most(pod.spec, amounts)
    return None if spec is None or spec == pod.spec else replace(pod, spec=spec)


def _by_ways(asked: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    for way in sorted(ways, key=len):
        plugins = sorted({cause.plugin for cause in way})
        for row in asked.nearest(asked.found.only(way), TRIED):
            for text, pod in _changes(asked, plugins, row):
                if asked.takes(pod, row, plugins):
                    yield _remedy(asked, text, row, enough=asked.starts(pod, row))


def _changes(asked: Question, plugins: Sequence[str], row: int) -> list[tuple[str, Pod]]:
    """Return changes that all the plugins would accept, each on top of the one before."""
    found = [("", asked.pod)]
    for plugin in plugins:
        found = [
            (f"{before} and {text}" if before else text, changed)
            for before, pod in found
            for text, changed in asked.pod_remedies(plugin, row, pod)
        ]
    return found


def _remedy(asked: Question, text: str, row: int, *, enough: bool) -> Remedy:
    node = asked.state.nodes.names[row]
    text = f"{text}: {node} takes it then"
    return Remedy(kind="change-pod", text=text, sufficient=enough, nodes=(node,))


def _merged(offers: Sequence[list[dict[str, int]]]) -> Iterator[dict[str, int]]:
    """Yield what all offers allow, from the largest amounts on."""
    for index in range(min(max(map(len, offers)), CANDIDATES)):
        amounts: dict[str, int] = {}
        for offer in offers:
            for name, most in offer[min(index, len(offer) - 1)].items():
                amounts[name] = min(amounts.get(name, most), most)
        yield amounts
