"""Decoding into types by several threads at once."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from koordinator.foundation.decoders import convert, decode_json, decoder_of

#: Classes that share others are decoded for the first time by four threads at the same moment.
FIRST_TIMES = """
import sys, threading
from msgspec import defstruct
from koordinator.foundation.decoders import convert, decode_json, decoder_of

sys.setswitchinterval(1e-5)
for round_ in range(100):
    inner = defstruct(f"Inner{round_}", [(f"f{i}", int | None, None) for i in range(40)])
    lists = [(f"m{i}", list[inner], []) for i in range(20)]
    middle = defstruct(f"Middle{round_}", [*lists, ("a", inner | None, None)])
    one = defstruct(f"One{round_}", [("x", middle)])
    other = defstruct(f"Other{round_}", [("x", middle)])
    text, start = b'{"x": {"a": {"f3": 1}, "m0": [{"f1": 1}]}}', threading.Barrier(4)
    tree = decode_json(text)
    ways = (
        lambda: decode_json(text, one),
        lambda: decoder_of(other).decode(text),
        lambda: convert(tree, one),
        lambda: decode_json(text, other),
    )
    values = []
    def run(way):
        start.wait()
        values.append(way().x.a.f3)
    threads = [threading.Thread(target=run, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [1, 1, 1, 1]
"""


class Amount(msgspec.Struct):
    cpu: int = 0


@pytest.mark.integration
def test_threads_that_decode_a_type_for_the_first_time_do_not_end_the_process() -> None:
    """Msgspec alone ends with a segmentation fault within a few rounds."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TIMES], cwd=Path.cwd(), stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_invalid_data_is_rejected_each_time() -> None:
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
            decode_json(b'{"cpu": "much"}', Amount)
        with pytest.raises(msgspec.ValidationError, match="Expected `object`, got `null`"):
            convert(None, Amount)
    assert decoder_of(Amount).decode(b'{"cpu": 2}') == Amount(2)
