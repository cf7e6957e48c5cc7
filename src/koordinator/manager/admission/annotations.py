"""Annotations that no component would read: JSON nested too deep, or too long.

The original lets them in; here whoever reads one leaves it out, so its writer is told at once.
"""

from koordinator.api.annotations.codec import annotation_path
from koordinator.api.meta import KubeObject
from koordinator.api.nesting import check_annotation
from koordinator.foundation.errors import InputError

_DOMAIN = "koordinator.sh/"


def check_annotations(new: KubeObject, old: KubeObject | None) -> None:
    """Raise InputError for an annotation of ours that nobody would read.

    One that is there already does not keep an object from being changed otherwise.
    """
    before = old.metadata.annotations if old is not None else {}
    for key, text in new.metadata.annotations.items():
        if _DOMAIN in key and before.get(key) != text:
            try:
                check_annotation(text.encode())
            except InputError as error:
                raise error.within(path=annotation_path(key)) from None
