"""How whoever watches a run ends it early."""


class RunInterrupted(Exception):  # noqa: N818 -- no failure: the run ends with what there is
    """Raise it in a callback of a run, which then returns what became of it so far."""
