"""Leases, and the names of those that Koordinator's components hold.

Source: k8s.io/api coordination/v1/types.go.
"""

from typing import ClassVar, Final

from koordinator.api.core import MicroTime
from koordinator.api.meta import ApiStruct, KubeObject

#: Names of the Leases: the chart sets the scheduler's, the others are defaults.
SCHEDULER_LEASE: Final = "koord-scheduler"
MANAGER_LEASE: Final = "koordinator-manager"
DESCHEDULER_LEASE: Final = "koord-descheduler"
YARN_OPERATOR_LEASE: Final = "koordinator-yarn-operator"


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """Lost ``lease_duration_seconds`` after ``renew_time``."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, kw_only=True):
    """A lock that runs out."""

    API_VERSION: ClassVar[str] = "coordination.k8s.io/v1"
    KIND: ClassVar[str] = "Lease"
    PLURAL: ClassVar[str] = "leases"

    spec: LeaseSpec = LeaseSpec()


KINDS = (Lease,)
