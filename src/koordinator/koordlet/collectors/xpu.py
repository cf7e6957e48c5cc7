"""Accelerators described by device daemons, in JSON files on the node.

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
    """Return the devices in all files of a folder, by UUID; a later file overrides earlier ones.

    An unreadable file is logged; in that case devices of ``before`` are kept.  Files that are
    being written (hidden, or named ``.tmp``) are skipped.
    """
    xpus: dict[str, Xpu] = {}
    is_incomplete = False
    for name in files.names(folder):
        if name.startswith(".") or name.endswith(_UNFINISHED):
            continue
        path = f"{folder}/{name}"
        try:
            described = decode_json(files.read(path), list[Xpu])
        except MissingFileError:
            continue  # a folder, or deleted meanwhile
        except (HostError, msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("accelerators not readable", extra={"file": path, "error": str(error)})
            is_incomplete = True
            continue
        xpus |= {xpu.uuid: xpu for xpu in described}
    if is_incomplete:
        xpus = {xpu.uuid: xpu for xpu in before} | xpus
    return sorted(xpus.values(), key=lambda xpu: xpu.uuid)
