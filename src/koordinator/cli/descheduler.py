"""``koord descheduler``: the descheduler against a cluster, or once over manifests."""

from koordinator.cli.dataclass_flags import with_flags
from koordinator.cli.descheduler_flags import DeschedulerFlags, write_descheduler_configuration
from koordinator.foundation.errors import InputError


@with_flags
def descheduler(flags: DeschedulerFlags) -> None:
    """Run the descheduler on a cluster until it is told to stop."""
    configuration = flags.configuration()
    if flags.once:
        from koordinator.cli.descheduler_once import run_once  # noqa: PLC0415 -- takes long to load

        run_once(configuration, flags)
        return
    if flags.files or flags.now or flags.cycles != 1:
        source = "--filename, --now, --cycles"
        raise InputError("accepted together with --once only", source=source)
    if flags.write_config_to is not None:
        write_descheduler_configuration(configuration, flags.write_config_to)
        return
    from koordinator.cli.descheduler_process import run  # noqa: PLC0415 -- servers and clients take
    # half a second to load, which no other command should pay

    run(configuration, flags)
