"""Kubernetes quantities (``500m``, ``1Gi``, ``2e3``) as exact integers.

Every quantity is a whole number of nanos, so nothing is ever rounded but what Kubernetes rounds:
amounts below one nano, and ``value()`` and ``milli()``, all three away from zero.
Source: k8s.io/apimachinery pkg/api/resource/quantity.go, ``ParseQuantity``, ``CanonicalizeBytes``,
``ScaledValue``.
"""

import re
from enum import StrEnum
from functools import lru_cache, total_ordering
from typing import Final, final

from koordinator.foundation.errors import InputError
from koordinator.foundation.text import cut

NANOS: Final = 10**9  # in one
NANOS_PER_MILLI: Final = 10**6
_MAX_BINARY = (2**63 - 1) * NANOS  # what Kubernetes caps an amount with a binary suffix at
_MAX_TEXT = 100  # characters; bounds the work that one text can cause

_DECIMAL_EXPONENTS = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES = {exponent: suffix for suffix, exponent in _BINARY_EXPONENTS.items()}

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]?|[KMGTPE]i)|[eE](?P<exponent>[+-]?0*[0-9]{1,2}))"
)


class Notation(StrEnum):
    """The family of suffixes in which an amount is printed."""

    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"
    BINARY_SI = "BinarySI"


@final
@total_ordering
class Quantity:
    """An amount of a resource.  Compared, ordered and hashed by amount, whatever the notation.

    Not a dataclass: msgspec would decode one field by field.
    """

    __slots__ = ("nanos", "notation", "text")

    def __init__(
        self, nanos: int, notation: Notation = Notation.DECIMAL_SI, text: str = ""
    ) -> None:
        self.nanos: Final = nanos
        self.notation: Final = notation
        self.text: Final = text  # as read; empty if computed

    @staticmethod
    def parse(amount: str | float) -> "Quantity":
        """Return the quantity that a manifest spells as text or as a number.

        A text that was seen before costs one dictionary look-up.

        Raises InputError if it is not a quantity.
        """
        if isinstance(amount, str):
            return _parse_text(amount)
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise _not_a_quantity(amount)
        return _parse_text(str(amount))

    @staticmethod
    def from_milli(milli: int) -> "Quantity":
        """Return ``milli`` thousandths, printed with decimal suffixes."""
        return Quantity(milli * NANOS_PER_MILLI)

    @staticmethod
    def from_int(amount: int, *, binary: bool = False) -> "Quantity":
        """Return ``amount`` whole units, printed as ``Ki``, ``Mi``, … if ``binary``."""
        return Quantity(
            amount * NANOS, notation=Notation.BINARY_SI if binary else Notation.DECIMAL_SI
        )

    def value(self) -> int:
        """Return whole units, rounded away from zero."""
        return _rounded(self.nanos, NANOS)

    def milli(self) -> int:
        """Return thousandths, rounded away from zero."""
        return _rounded(self.nanos, NANOS_PER_MILLI)

    def canonical(self) -> str:
        """Return the one spelling that the Go library prints for this amount and notation.

        No fraction, the largest suffix that allows this.  A binary amount that is below 1024 or
        not whole is printed with decimal suffixes.
        """
        if not self.nanos:
            return "0"
        if self.notation is Notation.BINARY_SI:
            units, rest = divmod(self.nanos, NANOS)
            if not rest and abs(units) >= 1024:  # noqa: PLR2004 -- the base of the notation
                return _binary_text(units)
        return _decimal_text(self.nanos, with_exponent=self.notation is Notation.DECIMAL_EXPONENT)

    def __str__(self) -> str:
        return self.text or self.canonical()

    def __repr__(self) -> str:
        return f"Quantity.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, (self if self.nanos else other).notation)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, (self if self.nanos else other).notation)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.notation)


def _rounded(nanos: int, unit: int) -> int:
    return nanos // unit if nanos < 0 else -(-nanos // unit)


#: Most texts are digits and one of these suffixes: notation, factor in nanos, and the largest
#: number if there is a limit.
_PLAIN: Final[dict[str, tuple[Notation, int, int | None]]] = {
    **{
        suffix: (Notation.DECIMAL_SI, 10 ** (9 + exponent), None)
        for suffix, exponent in _DECIMAL_EXPONENTS.items()
    },
    **{
        suffix: (Notation.BINARY_SI, NANOS << exponent, _MAX_BINARY)
        for suffix, exponent in _BINARY_EXPONENTS.items()
    },
}


@lru_cache(maxsize=1 << 12)
def _parse_text(text: str) -> Quantity:
    digits = text.rstrip("numkKMGTPEi")
    plain = _PLAIN.get(text[len(digits) :])
    if plain is not None and digits.isdecimal() and text.isascii() and len(text) <= _MAX_TEXT:
        notation, unit, most = plain
        nanos = int(digits) * unit
        return Quantity(nanos if most is None or nanos < most else most, notation, text)
    return _parse_any(text)


def _parse_any(text: str) -> Quantity:
    """Return the quantity of any text, by the grammar."""
    match = _TEXT.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise _not_a_quantity(text)
    whole, fraction, suffix = match["whole"], match["fraction"] or "", match["suffix"]
    digits = int(whole + fraction)
    if suffix in _BINARY_EXPONENTS:
        notation = Notation.BINARY_SI
        power, shift = 9 - len(fraction), _BINARY_EXPONENTS[suffix]
    else:
        decimal = suffix is not None
        notation = Notation.DECIMAL_SI if decimal else Notation.DECIMAL_EXPONENT
        exponent = _DECIMAL_EXPONENTS[suffix] if decimal else int(match["exponent"])
        power, shift = 9 - len(fraction) + exponent, 0
    nanos = digits << shift
    nanos = nanos * 10**power if power >= 0 else -(-nanos // 10**-power)
    if notation is Notation.BINARY_SI:
        nanos = min(nanos, _MAX_BINARY)
        if 0 < nanos < NANOS:
            notation = Notation.DECIMAL_SI
    return Quantity(-nanos if match["sign"] == "-" else nanos, notation, text)


def _not_a_quantity(value: object) -> InputError:
    return InputError(
        f"{cut(repr(value), _MAX_TEXT)} is not a quantity; must be a number with an optional "
        "suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or exponent of "
        "at most two digits such as e3 (examples: 500m, 1.5, 2Gi)"
    )


def _binary_text(units: int) -> str:
    exponent = 0
    while exponent < 60 and units % 1024 == 0:  # noqa: PLR2004 -- Ei is the largest suffix
        units //= 1024
        exponent += 10
    return f"{units}{_BINARY_SUFFIXES.get(exponent, '')}"


def _decimal_text(nanos: int, *, with_exponent: bool) -> str:
    exponent, largest = -9, 999 if with_exponent else 18
    while exponent < largest and nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    if with_exponent:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIXES[exponent]}"
