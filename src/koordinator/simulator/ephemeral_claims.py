"""The claims of ephemeral volumes, which in a cluster a controller makes once the pod is there.

Claims outlive their pods here: nobody plays the garbage collector, and nothing depends on it.

Source: kubernetes pkg/controller/volume/ephemeral/controller.go ``handleVolume``.
"""

from collections.abc import Iterator
from contextlib import suppress

from koordinator.api.defaults import with_defaults
from koordinator.api.meta import ObjectMeta, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import AlreadyExistsError
from koordinator.scheduler.rules.volumes import claim_name


def create_ephemeral_claims(cluster: Cluster, pod: Pod) -> None:
    """Create the claims of a pod that is in the cluster; one of that name is left as it is."""
    for claim in ephemeral_claims(pod):
        with suppress(AlreadyExistsError):
            cluster.create(claim)


def ephemeral_claims(pod: Pod) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims that the pod needs and owns; a pod that is being deleted needs none."""
    if pod.metadata.deletion_timestamp is not None:
        return
    owner = OwnerReference(
        api_version=pod.API_VERSION,
        kind=pod.KIND,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    for volume in pod.spec.volumes:
        template = volume.ephemeral.volume_claim_template if volume.ephemeral else None
        if template is None:
            continue
        meta = ObjectMeta(
            name=claim_name(pod.metadata.name, volume),
            namespace=pod.metadata.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        )
        yield with_defaults(PersistentVolumeClaim(metadata=meta, spec=template.spec))
