"""What the scheduler reports of a quota in the object: annotations and ``status.used``.

Source: koordinator pkg/scheduler/plugins/elasticquota/controller.go,
``updateElasticQuotaStatusIfChanged``.
"""

from msgspec.structs import replace

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.annotations.quota import (
    ALLOCATED,
    CHILD_REQUEST,
    GUARANTEED,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    REQUEST,
    RUNTIME,
)
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.domain.quota.amounts import to_quantities
from koordinator.domain.quota.figures import QuotaFigures
from koordinator.foundation.errors import InputError


def with_status(quota: ElasticQuota, figures: QuotaFigures) -> ElasticQuota:
    """Return the quota with its figures; the very same object if it says so already.

    A resource that is missing counts as 0, so a quota nobody ever used is left alone.
    """
    reported = {
        RUNTIME: figures.runtime,
        REQUEST: figures.request,
        CHILD_REQUEST: figures.child_request,
        GUARANTEED: figures.guaranteed,
        ALLOCATED: figures.allocated,
        NON_PREEMPTIBLE_REQUEST: figures.non_preemptible_request,
        NON_PREEMPTIBLE_USED: figures.non_preemptible_used,
    }
    annotations = dict(quota.metadata.annotations)
    for annotation, amounts in reported.items():
        quantities = to_quantities(amounts)
        if not _says(quota, annotation, quantities):
            annotations |= annotation.entry(quantities)
    if annotations != quota.metadata.annotations:
        quota = replace(quota, metadata=replace(quota.metadata, annotations=annotations))
    used = to_quantities(figures.used)
    if _without_zeros(quota.status.used) != _without_zeros(used):
        quota = replace(quota, status=replace(quota.status, used=used))
    return quota


def _says(
    quota: ElasticQuota, annotation: AnnotationCodec[ResourceList], quantities: ResourceList
) -> bool:
    try:
        found = annotation.read(quota.metadata) or {}
    except InputError:
        return False
    return _without_zeros(found) == _without_zeros(quantities)


def _without_zeros(quantities: ResourceList) -> ResourceList:
    return {name: quantity for name, quantity in quantities.items() if quantity.nanos}
