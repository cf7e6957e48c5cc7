"""Pod templates of workloads, checked as the pods that are made of them will be."""

from koordinator.api.defaults import with_defaults
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.validation import validate
from koordinator.foundation.errors import InputError


def pod_of(template: PodTemplateSpec, meta: ObjectMeta) -> Pod:
    """Return a pod of the template under the name, labels and owner of ``meta``."""
    return with_defaults(Pod(metadata=meta, spec=template.spec))


def check_template(template: PodTemplateSpec, path: str) -> None:
    """Raise InputError with the path if pods of the template would be refused."""
    sample = ObjectMeta(
        name="sample",
        namespace="default",
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
    )
    try:
        validate(pod_of(template, sample))
    except InputError as error:
        raise InputError(error.problem, path=f"{path}.{error.path}") from None
