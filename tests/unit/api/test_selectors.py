"""Label selectors."""

import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.selectors import matches
from koordinator.foundation.errors import InputError

LABELS = {"app": "web", "tier": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("app", "In", ("web", "db"), True),
        ("app", "In", ("db",), False),
        ("x", "In", ("web",), False),
        ("app", "NotIn", ("db",), True),
        ("app", "NotIn", ("web",), False),
        ("x", "NotIn", ("web",), True),  # a missing label is in no set
        ("tier", "Exists", (), True),
        ("x", "Exists", (), False),
        ("tier", "DoesNotExist", (), False),
        ("x", "DoesNotExist", (), True),
    ],
)
def test_operator_has_the_meaning_of_apimachinery(
    key: str, operator: str, values: tuple[str, ...], expected: bool
) -> None:
    """Each operator has the meaning of apimachinery, also for a missing label."""
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=values)

    assert matches(LabelSelector(match_expressions=(requirement,)), LABELS) is expected


def test_requirements_are_anded() -> None:
    """Labels and expressions must all hold."""
    exists = LabelSelectorRequirement(key="x", operator="Exists")

    assert matches(LabelSelector(match_labels={"app": "web", "tier": ""}), LABELS)
    assert not matches(LabelSelector(match_labels={"app": "web", "x": ""}), LABELS)
    assert not matches(
        LabelSelector(match_labels={"app": "web"}, match_expressions=(exists,)), LABELS
    )


def test_empty_matches_all_and_missing_none() -> None:
    """The two must not be confused: {} selects everything, no selector selects nothing."""
    assert matches(LabelSelector(), {})
    assert not matches(None, LABELS)


def test_other_operators_are_refused() -> None:
    """Gt and Lt are of node selectors only."""
    greater = LabelSelectorRequirement(key="app", operator="Gt", values=("1",))

    with pytest.raises(InputError, match="must be In, NotIn, Exists or DoesNotExist"):
        matches(LabelSelector(match_expressions=(greater,)), LABELS)
