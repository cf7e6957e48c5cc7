"""AMD."""

from koordinator.api.resource_names import AMD_GPU
from koordinator.domain.devices.vendors.vendor import Vendor

AMD = Vendor(labels=("amd",), whole_card=AMD_GPU)
