"""Admission check of PodGroups; the scheduler itself tolerates invalid ones."""

from koordinator.api.codec import subject_of
from koordinator.api.pod_groups import PodGroup
from koordinator.domain.gangs.terms import GangDefaults, terms_of_object
from koordinator.foundation.errors import InputError


def check_pod_group(pod_group: PodGroup) -> None:
    """Raise InputError with all warnings about a PodGroup if there are any."""
    warnings = terms_of_object(pod_group, GangDefaults()).warnings
    if warnings:
        raise InputError("; ".join(warnings)).within(subject=subject_of(pod_group))
