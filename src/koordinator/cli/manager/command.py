"""Command ``koord manager``: the manager on a cluster, or once on manifests."""

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.manager.flags import ManagerFlags
from koordinator.foundation.errors import InputError


@with_flags
def manager(flags: ManagerFlags) -> None:
    """Run the manager on a cluster until a signal stops it."""
    flags.check()
    options = flags.options()
    if flags.once:
        from koordinator.cli.manager.once import run_once  # noqa: PLC0415 -- takes long to load

        run_once(
            options,
            flags.gates,
            files=flags.files or [],
            config=flags.config,
            now=flags.now,
            output=flags.output,
        )
        return
    if flags.files or flags.now:
        raise InputError("requires --once", source="--filename, --now")
    hooks = flags.hooks()
    flags.webhook.check()
    from koordinator.cli.manager.process import (  # noqa: PLC0415 -- servers and clients take half a
        ManagerSettings,  # second to load, which no other command should pay
        run,
    )

    run(ManagerSettings.of(flags, options, hooks))
