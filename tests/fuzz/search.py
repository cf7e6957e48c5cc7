"""Looks for seeds whose worlds break a rule, makes them smaller, and writes them down."""

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fuzz.permuted import permuted
from tests.fuzz.play import Play
from tests.fuzz.script import Create, Script, Step, script_of

from koordinator.api.codec import encode
from koordinator.api.core import Namespace
from koordinator.api.event import Event
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.profile import WATCHED

MOST_TRIALS = 300  # with smaller scripts


@dataclass(frozen=True)
class Finding:
    """A script that breaks something, as small as it was made, and what it breaks."""

    script: Script
    error: str  # the last line of the trace
    trace: str


def played(script: Script) -> Finding | None:
    """Return what goes wrong with a script; None: nothing."""
    try:
        Play(script).run()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        problem = f"{type(error).__name__}: {error}"
        return Finding(script, problem, traceback.format_exc())
    return None


def played_in_other_orders(script: Script) -> Finding | None:
    """Return what another order of lists and maps changes; None: nothing."""
    one, other = Play(script, checks=False), Play(permuted(script), checks=False)
    one.run()
    other.run()
    if one.digest() == other.digest():
        return None
    problem = f"OrderError: {one.digest()} in one order, {other.digest()} in another"
    return Finding(script, problem, problem)


def search(seed: int) -> Finding | None:
    """Play the world of a seed; return the smallest script found that breaks the same.

    Every fifth world is played in other orders, too.
    """
    finding = played(script_of(seed))
    if finding is None and seed % 5 == 0:
        return played_in_other_orders(script_of(seed))
    return None if finding is None else smaller(finding)


def smaller(finding: Finding) -> Finding:
    """Leave out steps and objects as long as the same kind of thing goes wrong."""
    trials = MOST_TRIALS
    kind = _kind(finding)

    def still(steps: list[Step]) -> bool:
        nonlocal finding, trials
        trials -= 1
        again = played(replace(finding.script, steps=steps))
        if again is None or _kind(again) != kind:
            return False
        finding = again
        return True

    while trials > 0 and (_drop_steps(finding, still) or _drop_objects(finding, still)):
        pass
    return finding


def _kind(finding: Finding) -> str:
    return finding.error.partition(":")[0]


def _drop_steps(finding: Finding, still: Callable[[list[Step]], bool]) -> bool:
    steps = finding.script.steps
    size = max(1, len(steps) // 2)
    while size:
        for start in range(0, len(steps), size):
            fewer = steps[:start] + steps[start + size :]
            if len(fewer) < len(steps) and still(fewer):
                return True
        size //= 2
    return False


def _drop_objects(finding: Finding, still: Callable[[list[Step]], bool]) -> bool:
    steps = finding.script.steps
    for at, step in enumerate(steps):
        if not isinstance(step, Create) or len(step.objects) < 2:
            continue
        for number in range(len(step.objects)):
            objects = step.objects[:number] + step.objects[number + 1 :]
            if still([*steps[:at], Create(objects), *steps[at + 1 :]]):
                return True
    return False


def write(finding: Finding, folder: Path) -> None:
    """Write the configuration, the steps, and the cluster just before it went wrong.

    ``koord schedule -f objects.json --config config.yaml`` repeats the decision on pending pods.
    """
    folder.mkdir(parents=True, exist_ok=True)
    play = Play(finding.script)
    objects = _objects(play)
    trace: list[str] = []
    for step in finding.script.steps:
        trace.append(repr(step) if not isinstance(step, Create) else _source_of(step))
        objects = _after(play, step)
        try:
            play.step(step)
        except Exception:  # noqa: BLE001  # what is looked for
            break
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    (folder / "objects.json").write_text(json.dumps(listed, indent=1))
    (folder / "config.yaml").write_text(json.dumps(finding.script.profile, indent=1))
    (folder / "steps.txt").write_text("\n".join(trace) + "\n\n" + finding.trace)


def _source_of(step: Create) -> str:
    return "\n".join(["Create", *(encode(obj).decode() for obj in step.objects)])


def _after(play: Play, step: Step) -> list[object]:
    """Return the objects that there are once the step has happened and nothing is decided."""
    if not isinstance(step, Create):
        return _objects(play)
    there = _objects(play)
    return there + [json.loads(encode(obj)) for obj in step.objects]


def _objects(play: Play) -> list[object]:
    kinds: list[type[KubeObject]] = [kind for kind in WATCHED if kind not in (Event, Namespace)]
    every: list[type[KubeObject]] = [Node, *kinds, Pod]
    return [
        json.loads(encode(obj))
        for kind in dict.fromkeys(every)
        for obj in play.cluster.list(kind).items
    ]
