"""Pod groups: pods that are scheduled together or not at all.

Source: koordinator apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1/types.go.
"""

import datetime as dt
from enum import StrEnum
from typing import ClassVar

from koordinator.api.core import ResourceList
from koordinator.api.crd import CustomResource, StandardCondition
from koordinator.api.meta import ApiStruct, Int32


class PodGroupPhase(StrEnum):
    """Phase of a group, empty before the first sync; Unknown is never set."""

    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """How many pods make the group; ``min_resources`` is not looked at."""

    min_member: Int32 = 0
    min_resources: ResourceList = {}
    schedule_timeout_seconds: Int32 | None = None  # None or below 1 is the scheduler's default


class PodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """How far the group is; ``occupied_by`` names the owners of its pods."""

    phase: str = ""  # a PodGroupPhase
    occupied_by: str = ""
    scheduled: Int32 = 0
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    schedule_start_time: dt.datetime | None = None
    conditions: tuple[StandardCondition, ...] = ()  # ours: whether the object is valid


class PodGroup(CustomResource, frozen=True, kw_only=True):
    """A gang."""

    API_VERSION: ClassVar[str] = "scheduling.sigs.k8s.io/v1alpha1"
    KIND: ClassVar[str] = "PodGroup"
    PLURAL: ClassVar[str] = "podgroups"
    API_APPROVED: ClassVar[str] = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


KINDS = (PodGroup,)
