"""Answers the kubelet that prepares claims: which devices of the runtime a claim's GPUs are.

Nothing is kept: an answer follows from the claim and from the devices of the node, so a restart
forgets nothing, and there is nothing to undo when a claim is given back.  The runtime knows GPUs by
the CDI specification that the vendor's toolkit has written.
"""

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.api.device import Device, DeviceType
from koordinator.api.dynamic_resources import DeviceRequestAllocationResult, ResourceClaim
from koordinator.cluster.port import Cluster
from koordinator.domain.dynamic_resources.node_gpus import CDI_KIND, DRIVER, minor_of
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

Answer = Callable[[bytes], bytes]
_NOTHING: Final = b""


class GpuClaims:
    """Serves calls of the kubelet from several threads; ``publish`` says which GPUs there are."""

    def __init__(self, cluster: Cluster, node: str, on_registered: Callable[[], None]) -> None:
        """``on_registered`` is told that the kubelet has begun to call.

        It deletes slices whose driver it has not seen for a while.
        """
        self._cluster, self._node = cluster, node
        self._on_registered = on_registered
        self._ids: Mapping[int, str] = {}  # by minor; replaced, never changed
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
        self._ids = {
            info.minor: info.id
            for info in device.spec.devices
            if info.type == DeviceType.GPU and info.minor is not None and info.id
        }

    def _registered(self, _: bytes) -> bytes:
        self._on_registered()
        return _NOTHING

    def _prepare(self, request: bytes) -> bytes:
        asked = decode_message(ClaimReferences, request).claims
        answers = tuple(ClaimAnswer(uid=each.uid, prepared=self._prepared(each)) for each in asked)
        return encode_message(ClaimAnswers(claims=answers))

    @staticmethod
    def _unprepare(request: bytes) -> bytes:
        asked = decode_message(ClaimReferences, request).claims
        return encode_message(ClaimAnswers(claims=tuple(ClaimAnswer(uid=e.uid) for e in asked)))

    def _prepared(self, asked: ClaimReference) -> PreparedClaim:
        try:
            claim = self._cluster.get(ResourceClaim, asked.name, asked.namespace)
            return PreparedClaim(devices=tuple(self._devices(claim, asked.uid)))
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
        known = self._ids.get(minor) if minor is not None else None
        if result.pool != self._node or known is None:
            raise HostError(f"node {self._node} has no GPU {result.pool}/{result.device}")
        return PreparedDevice(
            requests=(result.request,),
            pool=result.pool,
            device=result.device,
            cdi_ids=(f"{CDI_KIND}={known}",),
        )
