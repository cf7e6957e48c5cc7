"""Command ``koord yarn-operator``: batch resources of Kubernetes for YARN's NodeManagers."""

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.yarn.operator_flags import YarnOperatorFlags


@with_flags
def yarn_operator(flags: YarnOperatorFlags) -> None:
    """Run the YARN operator on a cluster until a signal stops it."""
    flags.check()
    from koordinator.cli.yarn.operator_process import (  # noqa: PLC0415 -- servers and clients take
        run_yarn_operator,  # half a second to load, which no other command should pay
    )

    run_yarn_operator(flags)
