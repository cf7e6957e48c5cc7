"""Limits on the depth and length of JSON that becomes objects.

The author of a pod writes text into its annotations.  Deep nesting would exhaust the stack of code
that walks the decoded value; so such text is rejected, or cut, before.
Source: apimachinery pkg/api/validation/objectmeta.go ``TotalAnnotationSizeLimitB``.
"""

import re
from itertools import accumulate

from koordinator.foundation.errors import InputError

DEEPEST = 100  # objects and lists within each other
LONGEST_ANNOTATION_BYTES = 256 << 10  # all annotations of an object together, in Kubernetes
TOO_DEEP = f"nested too deep; at most {DEEPEST} levels are allowed"

_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = tuple(
    {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}.get(b, 0) for b in range(256)
)


def check_nesting(text: bytes) -> None:
    """Raise InputError if JSON text is nested deeper than ``DEEPEST``.

    What is no JSON may pass.
    """
    if len(text) <= DEEPEST or text.count(b"[") + text.count(b"{") <= DEEPEST:
        return
    # Backslashes occur in strings only; without escaped ones, each quote delimits a string.
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    brackets = b"".join(plain.split(b'"')[::2]).translate(None, _NO_BRACKETS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > DEEPEST:
        raise InputError(TOO_DEEP)


def check_annotation(text: bytes) -> None:
    """Raise InputError if the JSON text of an annotation is nested too deep or too long."""
    if len(text) > LONGEST_ANNOTATION_BYTES:
        raise InputError(
            f"must be at most {LONGEST_ANNOTATION_BYTES} bytes (256 KiB), got {len(text)}"
        )
    check_nesting(text)


def cut_nesting(text: bytes) -> bytes:
    """Return JSON text with null in place of each value that is nested too deep."""
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKENS.finditer(text):
        step = _STEPS[text[token.start()]]
        depth += step
        if step > 0 and depth == DEEPEST + 1:
            kept += (text[start : token.start()], b"null")
        elif step < 0 and depth == DEEPEST:
            start = token.end()
    kept.append(text[start:])
    return b"".join(kept)
