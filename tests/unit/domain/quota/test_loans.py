"""Loans between quotas."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.quota.quotas import CHIP, grow

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.domain.quota import Loan, QuotaTree, loans


def test_usage_above_the_minimum_is_lent_by_siblings() -> None:
    """First of those that lend, in order of names; unguaranteed amounts come last."""
    made = QuotaTree()
    made.set_total({CHIP: 20})
    grow(made, "a", most=20, least=2, request=10, used=10)
    grow(made, "b", most=20, least=4, request=1, used=1)
    grow(made, "c", most=20, least=3, lends=False)
    grow(made, "d", most=20, least=2)

    assert loans(made, ROOT_QUOTA) == [
        Loan("a", "b", CHIP, 3),
        Loan("a", "d", CHIP, 2),
        Loan("a", "", CHIP, 3),
    ]
    assert loans(made, "a") == []


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 2, st.booleans()), max_size=6))
def test_loans_of_siblings_balance(quotas: list[tuple[int, int, bool]]) -> None:
    """A quota borrows its usage beyond its minimum, and lends at most the unused rest of it."""
    made = QuotaTree()
    for i, (least, used, lends) in enumerate(quotas):
        grow(made, f"q{i}", most=9, least=least, request=used, used=used, lends=lends)
    all_loans = loans(made, ROOT_QUOTA)

    for i, (least, used, lends) in enumerate(quotas):
        borrowed = sum(loan.amount for loan in all_loans if loan.borrower == f"q{i}")
        lent = sum(loan.amount for loan in all_loans if loan.lender == f"q{i}")
        assert borrowed == max(used - least, 0)
        assert lent <= max(least - used, 0) * lends
