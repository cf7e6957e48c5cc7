"""``koord yarn-copilot``: the agent of YARN on a node."""

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.yarn.copilot_flags import YarnCopilotFlags


@with_flags
def yarn_copilot(flags: YarnCopilotFlags) -> None:
    """Run the agent of YARN on this node until it is told to stop."""
    from koordinator.cli.yarn.copilot_process import (  # noqa: PLC0415 -- takes long to load
        run_yarn_copilot,
    )

    run_yarn_copilot(flags)
