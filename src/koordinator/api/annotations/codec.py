"""Decoding and encoding of annotations.

Source: koordinator apis/extension (every Get and Set function).
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from koordinator.api.codec import decode, encode_part
from koordinator.api.labels import parse_int32
from koordinator.api.meta import ObjectMeta
from koordinator.api.nesting import check_annotation
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity

ValueT = TypeVar("ValueT")

_NULL = b"null"


@dataclass(frozen=True, slots=True)
class AnnotationCodec(Generic[ValueT]):
    """An annotation whose text is JSON of ``type``; a former key may stand in for a missing one."""

    key: str
    type: type[ValueT]
    former_key: str = ""

    @property
    def path(self) -> str:
        """Name of the annotation in messages."""
        return annotation_path(self.key)

    def read(self, meta: ObjectMeta) -> ValueT | None:
        """Return the value, None if the annotation is missing, empty or null.

        Raises InputError that names the annotation if the text doesn't fit the type.
        """
        for key in (self.key, self.former_key):
            text = meta.annotations.get(key)
            if text and (text := text.strip()):
                return self._parse(key, text.encode())
        return None

    def is_in(self, annotations: Mapping[str, str]) -> bool:
        """Return whether the annotation exists, valid or not."""
        return self.key in annotations or self.former_key in annotations

    def write(self, value: ValueT) -> str:
        """Return the text of the annotation."""
        return encode_part(value).decode()

    def entry(self, value: ValueT) -> dict[str, str]:
        """Return the annotation, to be merged with others."""
        return {self.key: self.write(value)}

    def _parse(self, key: str, text: bytes) -> ValueT | None:
        if text == _NULL:
            return None
        try:
            check_annotation(text)
            return decode(text, self.type)
        except InputError as error:
            raise error.within(path=annotation_path(key)) from None


def annotation_path(key: str) -> str:
    """Return how messages call an annotation."""
    return f"metadata.annotations[{key}]"


def read_int32(meta: ObjectMeta, key: str) -> int | None:
    """Return a decimal number, None if the annotation is missing or empty.

    Raises InputError that names the annotation if it isn't a number of 32 bits.
    """
    text = meta.annotations.get(key, "")
    if not text:
        return None
    number = parse_int32(text)
    if number is None:
        raise _refusal(key, text, "an integer of 32 bits")
    return number


def read_float(meta: ObjectMeta, key: str) -> float | None:
    """Return a number, None if the annotation is missing or empty.

    Raises InputError that names the annotation if it isn't a number.
    """
    text = meta.annotations.get(key, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise _refusal(key, text, "a number") from None


def read_quantity(meta: ObjectMeta, key: str) -> Quantity | None:
    """Return an amount, None if the annotation is missing or empty.

    Raises InputError that names the annotation if it isn't a quantity.
    """
    text = meta.annotations.get(key, "")
    try:
        return Quantity.parse(text) if text else None
    except InputError as error:
        raise error.within(path=annotation_path(key)) from None


def _refusal(key: str, value: str, accepted: str) -> InputError:
    return InputError(f"must be {accepted}, got {value!r}", path=annotation_path(key))
