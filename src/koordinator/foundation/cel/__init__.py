"""The Common Expression Language: small conditions that users write and programs evaluate.

An exact subset of what Kubernetes evaluates; whatever is missing is refused when the expression is
compiled, as a reference that is not declared (``library`` names it).

``syntax``     text to tree, macros included
``types``      types, and values that Python has none for
``checker``    static types
``library``    the functions of every environment
``addresses``  those of IP addresses and their ranges
``visitor``    a tree, node by node
``reads``      what of its variables an expression depends on
``program``    the tree as nested functions, evaluated within a number of steps
"""

from koordinator.foundation.cel.program import TOO_DEAR, CelEnvironment, CelProgram
from koordinator.foundation.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    CelCostError,
    CelError,
    CelType,
    RecordType,
    kind_of,
    overload,
    register_kind,
)

__all__ = [
    "BOOL",
    "DYN",
    "INT",
    "STRING",
    "TOO_DEAR",
    "CelCostError",
    "CelEnvironment",
    "CelError",
    "CelProgram",
    "CelType",
    "RecordType",
    "kind_of",
    "overload",
    "register_kind",
]
