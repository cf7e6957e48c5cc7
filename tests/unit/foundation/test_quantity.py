"""Quantities mean and print what they do in Kubernetes."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity, _parse_any

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
    **{f"e{power}": Fraction(10) ** power for power in range(-12, 19)},
    **{f"E{power:+}": Fraction(10) ** power for power in range(-12, 19)},
}
LARGEST_BINARY = 2**63 - 1

digits = st.text("0123456789", min_size=1, max_size=11)
numbers = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "+", "-"]),
        st.one_of(
            digits,
            digits.map("{}.".format),
            digits.map(".{}".format),
            st.tuples(digits, digits).map(".".join),
        ),
    ),
)


def away_from_zero(amount: Fraction) -> int:
    return math.ceil(amount) if amount >= 0 else math.floor(amount)


@given(number=numbers, suffix=st.sampled_from(sorted(FACTORS)))
def test_a_quantity_is_exact_down_to_nanos_and_rounds_away_from_zero_below(
    number: str, suffix: str
) -> None:
    """Amount, whole units and thousandths equal the results of rational arithmetic."""
    amount = Fraction(number.removesuffix(".")) * FACTORS[suffix]
    if suffix.endswith("i"):
        amount = max(min(amount, Fraction(LARGEST_BINARY)), Fraction(-LARGEST_BINARY))
    nanos = away_from_zero(amount * 10**9)

    quantity = Quantity.parse(number + suffix)

    assert quantity.nanos == nanos
    assert quantity.value() == away_from_zero(Fraction(nanos, 10**9))
    assert quantity.milli() == away_from_zero(Fraction(nanos, 10**6))


@given(number=numbers, suffix=st.sampled_from(sorted(FACTORS)))
def test_the_text_survives_and_the_canonical_text_means_the_same(number: str, suffix: str) -> None:
    """A quantity prints as it was read; its canonical text is a fixed point of equal amount."""
    quantity = Quantity.parse(number + suffix)
    canonical = Quantity.parse(quantity.canonical())

    assert str(quantity) == number + suffix
    assert canonical == quantity
    assert hash(canonical) == hash(quantity)
    assert canonical.canonical() == quantity.canonical()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-0.0Gi", "0"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("1.0001Ki", "1024102400u"),
        ("0.0001Ki", "102400u"),
        ("1234567", "1234567"),
        ("1200000", "1200k"),
        ("1000E", "1000E"),
        ("1e3", "1e3"),
        ("12e-1", "1200e-3"),
        ("1E", "1E"),
        ("1E3", "1e3"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("8Ei", str(LARGEST_BINARY)),
        (" 2Gi ", "2Gi"),
    ],
)
def test_canonical_text_is_that_of_the_go_library(text: str, canonical: str) -> None:
    """No fraction, the largest suffix of the same family that allows this."""
    assert Quantity.parse(text).canonical() == canonical


@pytest.mark.parametrize("number", [0, 3, -7, 0.25, 1e21, 2**70])
def test_numbers_are_quantities_too(number: float) -> None:
    """A manifest may say ``cpu: 2`` or ``cpu: 0.5``."""
    assert Fraction(Quantity.parse(number).nanos, 10**9) == Fraction(str(number))


@pytest.mark.parametrize(
    "wrong",
    ["", "-", ".", "1 Gi", "1gi", "Gi", "1e", "1e1.5", "1KiB", "0x10", "1e100", "1_0", "9" * 101],
)
def test_invalid_text_is_rejected_with_the_expected_form(wrong: str) -> None:
    """The message shows the text and lists the suffixes."""
    with pytest.raises(InputError, match=r"is not a quantity; must be .* Ki, Mi, Gi"):
        Quantity.parse(wrong)


@pytest.mark.parametrize("wrong", [True, None, [], {"cpu": 1}])
def test_other_types_are_refused(wrong: object) -> None:
    """Truth values are not numbers here."""
    with pytest.raises(InputError, match="is not a quantity"):
        Quantity.parse(wrong)  # type: ignore[arg-type]  # what a manifest may hold


@given(left=st.integers(-(10**12), 10**12), right=st.integers(-(10**12), 10**12))
def test_sums_differences_and_order_are_those_of_the_amounts(left: int, right: int) -> None:
    """Arithmetic is exact."""
    a, b = Quantity.from_milli(left), Quantity.from_milli(right)

    assert (a + b).milli() == left + right
    assert (a - b).milli() == left - right
    assert (-a).milli() == -left
    assert (a < b, a <= b, a == b) == (left < right, left <= right, left == right)


def test_a_sum_keeps_the_notation_of_the_first_amount_that_is_not_zero() -> None:
    """A total of memory that starts from zero prints with binary suffixes."""
    total = Quantity.from_int(0) + Quantity.parse("1Gi") + Quantity.parse("1024Mi")

    assert str(total) == "2Gi"


def test_constructed_quantities_print_in_the_given_notation() -> None:
    """``binary`` chooses Ki, Mi, …."""
    assert str(Quantity.from_int(2048)) == "2048"
    assert str(Quantity.from_int(2048, binary=True)) == "2Ki"
    assert str(Quantity.from_milli(1500)) == "1500m"


@given(number=digits, suffix=st.sampled_from(sorted(FACTORS)))
def test_plain_texts_follow_the_grammar(number: str, suffix: str) -> None:
    """Digits and a suffix are read without it."""
    text = number + suffix
    parsed, expected = Quantity.parse(text), _parse_any(text)

    for name in ("nanos", "notation", "text"):
        assert getattr(parsed, name) == getattr(expected, name)


def test_a_text_is_parsed_once() -> None:
    """Equal texts give the same object, so that reading 100,000 pods is cheap."""
    assert Quantity.parse("250m") is Quantity.parse("250m")
