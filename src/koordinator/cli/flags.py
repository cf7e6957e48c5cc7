"""Values of flags that several commands have."""

from koordinator.foundation.errors import InputError


def parse_bool(text: str, source: str = "--leader-elect") -> bool:
    """Return what a flag such as ``--leader-elect=false`` says.  Raises InputError."""
    if text.lower() in ("true", "1", "t"):
        return True
    if text.lower() in ("false", "0", "f"):
        return False
    raise InputError(f"found {text!r}; accepted is true or false", source=source)


def parse_gates(text: str) -> frozenset[str]:
    """Return the feature gates that are on; those of others, such as Kubernetes, do no harm.

    Raises InputError for a value that is neither true nor false.
    """
    pairs = [part.partition("=") for part in text.split(",") if part]
    return frozenset(
        name.strip() for name, _, value in pairs if parse_bool(value, "--feature-gates")
    )
