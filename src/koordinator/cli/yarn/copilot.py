"""Command ``koord yarn-copilot``: the YARN agent of a node."""

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.yarn.copilot_flags import YarnCopilotFlags


@with_flags
def yarn_copilot(flags: YarnCopilotFlags) -> None:
    """Run the YARN agent of this node until a signal stops it."""
    from koordinator.cli.yarn.copilot_process import (  # noqa: PLC0415 -- takes long to load
        run_yarn_copilot,
    )

    run_yarn_copilot(flags)
