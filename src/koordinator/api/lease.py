"""Leases: who leads.

Source: k8s.io/api coordination/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.core import MicroTime
from koordinator.api.meta import ApiStruct, KubeObject


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
