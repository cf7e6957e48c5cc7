"""Labels, annotations and resources are spelled as the original spells them."""

import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src/koordinator"
KEY = re.compile(r'"((?:[a-z-]+\.)*koordinator\.sh/[A-Za-z0-9._/-]*[A-Za-z0-9])"')
ORIGINAL = Path(__file__).with_name("original_keys.txt").read_text("utf-8").splitlines()
#: What only this project has.
OWN = {
    "descheduler.koordinator.sh/eviction-attempt",
    "descheduler.koordinator.sh/proven-move",
    "descheduler.koordinator.sh/used-reservation",
    "gang.scheduling.koordinator.sh/queue-position",
    "gang.scheduling.koordinator.sh/queue-reason",
    "internal.scheduling.koordinator.sh/reservation-terms",
    "koordinator.sh/node-pool",
    "quota.scheduling.koordinator.sh/child-namespaces",
    "quota.scheduling.koordinator.sh/queue-depth",
    "quota.scheduling.koordinator.sh/queue-order",
    "quota.scheduling.koordinator.sh/queue-policy",
    "simulation.koordinator.sh/arrival",
    "simulation.koordinator.sh/duration",
}


def spelled() -> Iterator[tuple[str, str]]:
    """Yield each key with the module that spells it; versions of groups are none."""
    for file in sorted(SOURCE.rglob("*.py")):
        for key in KEY.findall(file.read_text("utf-8")):
            if not re.search(r"/v\d\w*$", key):
                yield key, str(file.relative_to(SOURCE))


def test_every_key_is_one_of_the_original_or_known_to_be_our_own() -> None:
    """No object of a user has a key in another domain."""
    strange = {key: file for key, file in spelled() if key not in OWN and key not in ORIGINAL}

    assert strange == {}


def test_the_lists_hold_nothing_that_is_not_spelled() -> None:
    """An unused entry would hide a key that is misspelt later."""
    keys = {key for key, _ in spelled()}

    assert set(ORIGINAL[1:]) | OWN == keys
