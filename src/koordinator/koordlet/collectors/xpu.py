"""Accelerators that somebody else describes: JSON files which a device daemon leaves on the node.

Source: koordinator pkg/koordlet/metricsadvisor/devices/xpu/collector_xpu.go; pkg/koordlet/util/
device.go, ``XPUDeviceInfo``.
"""

import logging
from collections.abc import Sequence

import msgspec

from koordinator.domain.devices.xpu import Xpu
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.port import Files

log = logging.getLogger(__name__)

_UNFINISHED = ".tmp"


def read_xpus(files: Files, folder: str, before: Sequence[Xpu] = ()) -> Sequence[Xpu]:
    """Return what all files of a folder describe, by UUID; of one described twice the last.

    A file that can't be read is left out and told; then those stay that were there ``before``.
    Files that are being written (hidden, or named ``.tmp``) are none yet.
    """
    found: dict[str, Xpu] = {}
    lost = False
    for name in files.names(folder):
        if name.startswith(".") or name.endswith(_UNFINISHED):
            continue
        path = f"{folder}/{name}"
        try:
            described = decode_json(files.read(path), list[Xpu])
        except MissingFileError:
            continue  # a folder, or gone since
        except (HostError, msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("accelerators not read", extra={"file": path, "error": str(error)})
            lost = True
            continue
        found |= {xpu.uuid: xpu for xpu in described}
    if lost:
        found = {xpu.uuid: xpu for xpu in before} | found
    return sorted(found.values(), key=lambda xpu: xpu.uuid)
