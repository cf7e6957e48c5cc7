"""Hygon, maker of DCUs."""

from koordinator.api.resource_names import HYGON_DCU
from koordinator.domain.devices.vendors.vendor import Vendor

HYGON = Vendor(labels=("hygon",), whole_card=HYGON_DCU)
