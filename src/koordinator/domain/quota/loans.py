"""Who uses what is guaranteed to whom: among siblings, quota by quota."""

from dataclasses import dataclass

from koordinator.domain.quota.tree import QuotaTree


@dataclass(frozen=True, slots=True)
class Loan:
    """An amount of a resource that a quota uses beyond its minimum.

    ``lender`` is the sibling whose minimum it comes out of; empty: nobody is guaranteed it.
    """

    borrower: str
    lender: str
    resource: str
    amount: int


def loans(tree: QuotaTree, parent: str) -> list[Loan]:
    """Return the loans among the children of a quota or of the root; KeyError if there is none.

    What siblings leave of their minimums is taken first, in order of names: nobody keeps books
    about whose unused core is lent to whom, so this is one fair reading of many.
    """
    children = [tree.node(name) for name in sorted(tree.node(parent).children) if name in tree]
    found = []
    for resource in sorted({name for child in children for name in child.max}):
        left = {
            child.name: child.min.get(resource, 0) - child.used.get(resource, 0)
            for child in children
            if child.lends
        }
        for child in children:
            beyond = child.used.get(resource, 0) - child.min.get(resource, 0)
            for lender, rest in left.items():
                if beyond > 0 and rest > 0:
                    amount = min(beyond, rest)
                    left[lender] -= amount
                    beyond -= amount
                    found.append(Loan(child.name, lender, resource, amount))
            if beyond > 0:
                found.append(Loan(child.name, "", resource, beyond))
    return found
