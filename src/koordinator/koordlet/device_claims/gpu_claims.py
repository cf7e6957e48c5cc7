"""Answers the kubelet that prepares claims: which devices of the runtime a claim's GPUs are.

An answer follows from the claim and from the devices of the node, so a restart forgets nothing, and
there is nothing to undo when a claim is given back.  The runtime knows GPUs by the CDI
specification that the vendor's toolkit has written; what a container has of them it is told when it
is made, by the same hook as one whose pod requests a share.
"""

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.api.annotations.devices import DeviceAllocation
from koordinator.api.device import Device, DeviceInfo, DeviceType
from koordinator.api.dynamic_resources import DeviceRequestAllocationResult, ResourceClaim
from koordinator.api.pod import Container, Pod
from koordinator.cluster.port import Cluster
from koordinator.domain.devices.allocation import Taken, to_annotation
from koordinator.domain.devices.amounts import RATIO, amounts_of
from koordinator.domain.dynamic_resources.allocation import claim_names
from koordinator.domain.dynamic_resources.node_gpus import (
    CDI_KIND,
    DRIVER,
    ClaimedGpu,
    claimed_gpus,
    minor_of,
)
from koordinator.foundation.errors import ClusterError, HostError
from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.koordlet.device_claims.messages import (
    PLUGIN_TYPE,
    SERVICE,
    ClaimAnswer,
    ClaimAnswers,
    ClaimReference,
    ClaimReferences,
    PluginInfo,
    PreparedClaim,
    PreparedDevice,
)
from koordinator.koordlet.view.container_creation import ContainerCreation

Answer = Callable[[bytes], bytes]
_NOTHING: Final = b""
_GPU: Final = DeviceType.GPU


class GpuClaims:
    """Serves calls of the kubelet from several threads; ``publish`` says which GPUs there are."""

    def __init__(self, cluster: Cluster, node: str, on_registered: Callable[[], None]) -> None:
        """``on_registered`` is told that the kubelet has begun to call.

        It deletes slices whose driver it has not seen for a while.
        """
        self._cluster, self._node = cluster, node
        self._on_registered = on_registered
        self._gpus: Mapping[int, DeviceInfo] = {}  # by minor; replaced, never changed
        #: By key, from preparing to unpreparing: containers start again while no server answers.
        self._prepared_claims: dict[str, ResourceClaim] = {}
        # Without an endpoint: the kubelet calls on the socket on which it has asked.
        self._info = PluginInfo(type=PLUGIN_TYPE, name=DRIVER, versions=(SERVICE,))

    @property
    def methods(self) -> Mapping[str, Answer]:
        """Who answers which call."""
        return {
            "GetInfo": lambda _: encode_message(self._info),
            "NotifyRegistrationStatus": self._registered,
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }

    def publish(self, device: Device) -> None:
        """Take in what devices the node has; those that are not healthy can be in claims, too."""
        self._gpus = {
            info.minor: info
            for info in device.spec.devices
            if info.type == _GPU and info.minor is not None and info.id
        }

    def _registered(self, _: bytes) -> bytes:
        self._on_registered()
        return _NOTHING

    def _prepare(self, request: bytes) -> bytes:
        asked = decode_message(ClaimReferences, request).claims
        answers = tuple(ClaimAnswer(uid=each.uid, prepared=self._prepared(each)) for each in asked)
        return encode_message(ClaimAnswers(claims=answers))

    def _unprepare(self, request: bytes) -> bytes:
        asked = decode_message(ClaimReferences, request).claims
        for each in asked:
            known = self._prepared_claims.get(f"{each.namespace}/{each.name}")
            if known is not None and known.metadata.uid == each.uid:
                self._prepared_claims.pop(known.key, None)
        return encode_message(ClaimAnswers(claims=tuple(ClaimAnswer(uid=e.uid) for e in asked)))

    def _prepared(self, asked: ClaimReference) -> PreparedClaim:
        try:
            claim = self._cluster.get(ResourceClaim, asked.name, asked.namespace)
            devices = tuple(self._devices(claim, asked.uid))
            if devices:
                self._prepared_claims[claim.key] = claim
            return PreparedClaim(devices=devices)
        except (ClusterError, HostError) as error:
            return PreparedClaim(error=str(error))

    def _devices(self, claim: ResourceClaim, uid: str) -> list[PreparedDevice]:
        """Return the devices of a claim.  Raises HostError for one that can't be used here."""
        if claim.metadata.uid != uid:
            raise HostError(f"claim {claim.key} is another one by now")
        allocation = claim.status.allocation
        if allocation is None:
            raise HostError(f"claim {claim.key} has no devices")
        return [
            self._device(result) for result in allocation.devices.results if result.driver == DRIVER
        ]

    def _device(self, result: DeviceRequestAllocationResult) -> PreparedDevice:
        minor = minor_of(result.device)
        known = self._gpus.get(minor) if minor is not None else None
        if result.pool != self._node or known is None:
            raise HostError(f"node {self._node} has no GPU {result.pool}/{result.device}")
        return PreparedDevice(
            requests=(result.request,),
            pool=result.pool,
            device=result.device,
            cdi_ids=(f"{CDI_KIND}={known.id}",),
        )

    # -- what a container has of them --------------------------------------------------------

    def gpus_of(self, creation: ContainerCreation) -> tuple[DeviceAllocation, ...]:
        """Return what the claims of a container have of GPUs here, the smallest share first.

        As the annotation says it of pods that request as much.  Raises ClusterError where a pod or
        claim can't be read that was not known before, HostError for a pod that is another one.
        """
        pod, container = self._stated(creation)
        claims = claim_names(pod.spec.resource_claims, pod.status.resource_claim_statuses)
        names = {entry.name: name for entry, name in claims if name is not None}
        shares = [
            self._granted(gpu)
            for used in container.resources.claims
            if used.name in names
            for gpu in self._gpus_in(pod.metadata.namespace, names[used.name], used.request)
        ]
        shares.sort(key=lambda share: share.amounts[RATIO::-1])  # ratio, memory, core
        ids = {minor: info.id for minor, info in self._gpus.items()}
        return to_annotation({_GPU: tuple(shares)}, {_GPU: ids})[_GPU]

    def _stated(self, creation: ContainerCreation) -> tuple[Pod, Container]:
        """Return pod and container with their claims, which the runtime does not know."""
        pod, container = creation.pod.pod, creation.container.spec
        if pod.spec.containers:
            return pod, container
        found = self._cluster.get(Pod, pod.metadata.name, pod.metadata.namespace)
        if found.metadata.uid != pod.metadata.uid:
            raise HostError(f"pod {creation.pod.key} is another one by now")
        every = (*found.spec.containers, *found.spec.init_containers)
        return found, next((each for each in every if each.name == container.name), container)

    def _gpus_in(self, namespace: str, name: str, request: str) -> tuple[ClaimedGpu, ...]:
        claim = self._prepared_claims.get(f"{namespace}/{name}")
        if claim is None:
            claim = self._cluster.get(ResourceClaim, name, namespace)
        return claimed_gpus(claim, request).get(self._node, ())

    def _granted(self, gpu: ClaimedGpu) -> Taken:
        known = self._gpus.get(gpu.minor)
        return gpu.granted(amounts_of(_GPU, known.resources if known is not None else {}))
