"""Values of flags that several commands have."""

from koordinator.foundation.errors import InputError


def parse_bool(text: str, source: str = "--leader-elect") -> bool:
    """Return what a flag such as ``--leader-elect=false`` says.  Raises InputError."""
    if text.lower() in ("true", "1", "t"):
        return True
    if text.lower() in ("false", "0", "f"):
        return False
    raise InputError(f"found {text!r}; accepted is true or false", source=source)
