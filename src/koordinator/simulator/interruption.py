"""Early end of a run."""


class RunInterrupted(Exception):  # noqa: N818 -- not an error: the run returns its result so far
    """Raised by a callback of a run to end it early, with the result so far."""
