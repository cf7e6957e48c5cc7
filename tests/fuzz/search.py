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
    found = played(script_of(seed))
    if found is None and seed % 5 == 0:
        return played_in_other_orders(script_of(seed))
    return None if found is None else smaller(found)


def smaller(found: Finding) -> Finding:
    """Leave out steps and objects as long as the same kind of thing goes wrong."""
    trials = MOST_TRIALS
    kind = _kind(found)

    def still(steps: list[Step]) -> bool:
        nonlocal found, trials
        trials -= 1
        again = played(replace(found.script, steps=steps))
        if again is None or _kind(again) != kind:
            return False
        found = again
        return True

    while trials > 0 and (_drop_steps(found, still) or _drop_objects(found, still)):
        pass
    return found


def _kind(found: Finding) -> str:
    return found.error.partition(":")[0]


def _drop_steps(found: Finding, still: Callable[[list[Step]], bool]) -> bool:
    steps = found.script.steps
    size = max(1, len(steps) // 2)
    while size:
        for start in range(0, len(steps), size):
            fewer = steps[:start] + steps[start + size :]
            if len(fewer) < len(steps) and still(fewer):
                return True
        size //= 2
    return False


def _drop_objects(found: Finding, still: Callable[[list[Step]], bool]) -> bool:
    steps = found.script.steps
    for at, step in enumerate(steps):
        if not isinstance(step, Create) or len(step.objects) < 2:
            continue
        for number in range(len(step.objects)):
            objects = step.objects[:number] + step.objects[number + 1 :]
            if still([*steps[:at], Create(objects), *steps[at + 1 :]]):
                return True
    return False


def write(found: Finding, folder: Path) -> None:
    """Write the configuration, the steps, and the cluster just before it went wrong.

    ``koord schedule -f objects.json --config config.yaml`` repeats the decision on pending pods.
    """
    folder.mkdir(parents=True, exist_ok=True)
    play = Play(found.script)
    objects = _objects(play)
    trace: list[str] = []
    for step in found.script.steps:
        trace.append(repr(step) if not isinstance(step, Create) else _source_of(step))
        objects = _after(play, step)
        try:
            play.step(step)
        except Exception:  # noqa: BLE001  # what is looked for
            break
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    (folder / "objects.json").write_text(json.dumps(listed, indent=1))
    (folder / "config.yaml").write_text(json.dumps(found.script.profile, indent=1))
    (folder / "steps.txt").write_text("\n".join(trace) + "\n\n" + found.trace)


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
