"""Common Expression Language: compiler and evaluator of user-written conditions.

An exact subset of the CEL of Kubernetes.  Compilation rejects missing functions as undeclared
references (``library`` lists them).

``syntax``     text to tree, macros included
``types``      types, and values that Python has none for; visitor of syntax trees
``checker``    static types; the paths of variables that an expression reads
``library``    the functions of every environment
``program``    the tree as nested functions, evaluated within a number of steps
"""

from koordinator.foundation.cel.program import COST_LIMIT_EXCEEDED, CelEnvironment, CelProgram
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
    "COST_LIMIT_EXCEEDED",
    "DYN",
    "INT",
    "STRING",
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
