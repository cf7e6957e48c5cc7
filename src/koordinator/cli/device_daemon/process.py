"""The device daemon as a process: no cluster, no server, one file.

Source: koordinator cmd/koord-device-daemon/main.go.
"""

import logging
import signal

from koordinator.cli.device_daemon.flags import DeviceDaemonFlags
from koordinator.device_daemon.daemon import DaemonIntervals, DeviceDaemon, LinuxCardMachine
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import HostError
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.programs import LinuxVendorTools
from koordinator.process.logs import set_up_logging
from koordinator.process.termination import stop_on_signals

log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 0.5  # between two looks at signals


def run_device_daemon(flags: DeviceDaemonFlags) -> None:
    """Work until a signal stops it; the file is kept, so that no card disappears in a restart.

    Raises InputError for wrong flags, and HostError if a tool fails with ``--oneshot``.
    """
    set_up_logging(flags.process.logging_format, flags.process.verbosity)
    host, clock = LinuxHost(), SystemClock()
    daemon = DeviceDaemon(
        LinuxCardMachine(LinuxVendorTools(flags.host_root()), host, flags.sys_root()),
        host,
        clock,
        output=flags.output,
        intervals=DaemonIntervals(inventory_s=flags.inventory_s, health_s=flags.health_s),
    )
    if flags.oneshot:
        daemon.step()
        if daemon.has_failed:
            raise HostError("a tool of a vendor failed; the cards of the others are written")
        return
    stopping = stop_on_signals()
    hangups: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: hangups.append(number))
    while not stopping.is_set():
        if hangups:
            hangups.clear()
            daemon.request_inventory()
        daemon.step()
        stopping.wait(min(max(daemon.next_s() - clock.now_s(), 0.0), _LONGEST_WAIT_S))
    host.close()
    log.info("stopped")
