"""Accelerators that somebody else describes: JSON files which a device daemon leaves on the node.

Source: koordinator pkg/koordlet/metricsadvisor/devices/xpu/collector_xpu.go; pkg/koordlet/util/
device.go, ``XPUDeviceInfo``.
"""

import logging
from collections.abc import Sequence

import msgspec

from koordinator.domain.devices.xpu import Xpu
from koordinator.foundation.errors import HostError
from koordinator.host.port import Files

log = logging.getLogger(__name__)


def read_xpus(files: Files, folder: str) -> Sequence[Xpu]:
    """Return what all files of a folder describe, by UUID.

    A file that can't be read, such as a half-written one, is left out and told.
    """
    found: list[Xpu] = []
    for name in files.names(folder):
        path = f"{folder}/{name}"
        try:
            found += msgspec.json.decode(files.read(path), type=list[Xpu])
        except (HostError, msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("accelerators not read", extra={"file": path, "error": str(error)})
    return sorted(found, key=lambda xpu: xpu.uuid)
