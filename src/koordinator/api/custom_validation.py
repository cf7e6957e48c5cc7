"""Validation rules of custom resources that their schemas can't express."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.cluster_colocation_profile import (
    ClusterColocationProfile,
    validate_cluster_colocation_profile,
)
from koordinator.api.cluster_network_topology import (
    ClusterNetworkTopology,
    validate_cluster_network_topology,
)
from koordinator.api.device import Device, validate_device
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.meta import KubeObject
from koordinator.api.quota_validation import validate_elastic_quota, validate_elastic_quota_profile
from koordinator.api.recommendation import Recommendation, validate_recommendation
from koordinator.api.reservation import Reservation, validate_reservation

CHECKS: Final[Mapping[type[KubeObject], Callable[[Any], None]]] = MappingProxyType(
    {
        Device: validate_device,
        Reservation: validate_reservation,
        ElasticQuota: validate_elastic_quota,
        ElasticQuotaProfile: validate_elastic_quota_profile,
        ClusterNetworkTopology: validate_cluster_network_topology,
        ClusterColocationProfile: validate_cluster_colocation_profile,
        Recommendation: validate_recommendation,
    }
)
