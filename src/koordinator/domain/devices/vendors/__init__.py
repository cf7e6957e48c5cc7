"""Makers of accelerators, one file each.

A new maker is a file with a ``Vendor`` and its entry here; a maker without specifics needs neither.
"""

from typing import Final

from koordinator.domain.devices.vendors.amd import AMD
from koordinator.domain.devices.vendors.cambricon import CAMBRICON
from koordinator.domain.devices.vendors.huawei import HUAWEI
from koordinator.domain.devices.vendors.hygon import HYGON
from koordinator.domain.devices.vendors.metax import METAX
from koordinator.domain.devices.vendors.nvidia import NVIDIA
from koordinator.domain.devices.vendors.vendor import AdaptationError, Vendor

__all__ = ["VENDORS", "AdaptationError", "Vendor", "vendor_named"]

VENDORS: Final = (NVIDIA, AMD, HYGON, HUAWEI, CAMBRICON, METAX)

_NOBODY = Vendor(labels=())
_BY_LABEL = {label: vendor for vendor in VENDORS for label in vendor.labels}


def vendor_named(label: str) -> Vendor:
    """Return the vendor of a gpu-vendor label; one without specifics if it is unknown.

    An empty label is NVIDIA.
    """
    return _BY_LABEL.get(label, _NOBODY)
