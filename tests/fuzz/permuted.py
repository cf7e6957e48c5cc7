"""A script with every list and map in another order where that order means nothing."""

import json
import random
from dataclasses import replace
from typing import Any

from tests.fuzz.script import Create, Script

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.meta import KubeObject

#: Lists whose order means something: who is first, whose rank is lower, what is nested in what.
ORDERED = frozenset(
    ("containers", "initContainers", "deviceTypes", "gatherStrategy", "networkTopologySpec")
)


def permuted(script: Script) -> Script:
    """Return the same script; of objects, of JSON in their annotations too, other orders."""
    draw = random.Random(script.seed)
    steps = [
        Create(tuple(_permuted(obj, draw) for obj in step.objects))
        if isinstance(step, Create)
        else step
        for step in script.steps
    ]
    return replace(script, steps=steps)


def _permuted(obj: KubeObject, draw: random.Random) -> KubeObject:
    return decode_object(_shuffled(to_manifest(obj), draw))


def _shuffled(value: Any, draw: random.Random, name: str = "") -> Any:
    if isinstance(value, dict):
        items = [(key, _shuffled(each, draw, key)) for key, each in value.items()]
        draw.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        shuffled = [_shuffled(each, draw) for each in value]
        if name not in ORDERED:
            draw.shuffle(shuffled)
        return shuffled
    if isinstance(value, str) and value[:1] in {"{", "["}:
        return json.dumps(_shuffled(json.loads(value), draw, name))
    return value
