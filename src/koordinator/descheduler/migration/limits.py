"""How many pods of a workload may be moved, or be away, at a time.

Source: koordinator pkg/descheduler/controllers/migration/util/util.go, ``GetMaxUnavailable``.
"""

_MANY_REPLICAS = 10  # above it a tenth of them
_SOME_REPLICAS = 4  # from here on two
_PERCENTS = 100


def resolved_limit(replicas: int, amount: int | str | None) -> int:
    """Return a limit for a workload of so many replicas.

    A percentage is rounded down and is at least 1.  No amount is a tenth of more than ten replicas,
    2 of four or more, else 1.  It is never more than there are replicas.
    """
    if amount is None:
        if replicas > _MANY_REPLICAS:
            return replicas // 10
        return min(2 if replicas >= _SOME_REPLICAS else 1, replicas)
    return min(_scaled(amount, replicas) or 1, replicas)


def _scaled(amount: int | str, replicas: int) -> int:
    if isinstance(amount, int):
        return amount
    return int(amount.removesuffix("%")) * replicas // _PERCENTS
