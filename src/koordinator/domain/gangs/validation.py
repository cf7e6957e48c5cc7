"""What admission refuses of a PodGroup; the scheduler itself makes do with what it finds."""

from koordinator.api.codec import subject_of
from koordinator.api.pod_group import PodGroup
from koordinator.domain.gangs.terms import GangDefaults, terms_of_object
from koordinator.foundation.errors import InputError


def check_pod_group(pod_group: PodGroup) -> None:
    """Raise InputError, with every warning, unless all that a PodGroup says can be meant."""
    warnings = terms_of_object(pod_group, GangDefaults()).warnings
    if warnings:
        raise InputError("; ".join(warnings)).within(subject=subject_of(pod_group))
