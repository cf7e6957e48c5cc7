"""Preparation of resource claims: a DRA kubelet plugin for the node's GPUs.

A response depends only on the claim and the node's devices, so unpreparing undoes nothing.
Prepared claims are kept in a file: a restarted agent knows them while the API server is
unavailable.  The runtime knows GPUs from the CDI specification of the vendor's toolkit.  The
runtime hook that serves pods with a GPU share sets the limits of the container at its creation.
Source: k8s.io/kubelet pkg/apis/dra/v1/api.proto; pkg/apis/pluginregistration/v1/api.proto.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final

from koordinator.api.annotations.devices import DeviceAllocation
from koordinator.api.codec import decode_lines, encode_lines
from koordinator.api.device import Device, DeviceInfo, DeviceType
from koordinator.api.dynamic_resources import DeviceRequestAllocationResult, ResourceClaim
from koordinator.api.pod import Container, Pod
from koordinator.cluster.port import Cluster
from koordinator.domain.devices.allocation import RATIO, TakenDevice, amounts_of, to_annotation
from koordinator.domain.dynamic_resources.allocation import claim_names
from koordinator.domain.dynamic_resources.node_gpus import (
    CDI_KIND,
    DRIVER,
    ClaimedGpu,
    claimed_gpus,
    minor_of,
)
from koordinator.foundation.errors import (
    ClusterError,
    HostError,
    InputError,
    MissingFileError,
    NotFoundError,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import FieldNumber, decode_message, encode_message
from koordinator.host.port import Files
from koordinator.koordlet.view.pods import ContainerCreation

log = logging.getLogger(__name__)

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICE: Final = "v1.DRAPlugin"  # as announced at the registration

_NOTHING: Final = b""
_GPU: Final = DeviceType.GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """Registration of a plugin: its type, name, endpoint and versions."""

    type: Annotated[str, FieldNumber(1)] = ""
    name: Annotated[str, FieldNumber(2)] = ""
    endpoint: Annotated[str, FieldNumber(3)] = ""
    versions: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReference:
    """Identity of a claim."""

    namespace: Annotated[str, FieldNumber(1)] = ""
    uid: Annotated[str, FieldNumber(2)] = ""
    name: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReferences:
    """Claims of a request."""

    claims: Annotated[tuple[ClaimReference, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """Device of a claim, with its requests and the runtime's CDI ids."""

    requests: Annotated[tuple[str, ...], FieldNumber(1)] = ()
    pool: Annotated[str, FieldNumber(2)] = ""
    device: Annotated[str, FieldNumber(3)] = ""
    cdi_ids: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """Devices of a claim, or the error of its preparation."""

    devices: Annotated[tuple[PreparedDevice, ...], FieldNumber(1)] = ()
    error: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswer:
    """Entry of a protobuf map: a message of key and value on the wire."""

    uid: Annotated[str, FieldNumber(1)] = ""
    prepared: Annotated[PreparedClaim, FieldNumber(2)] = PreparedClaim()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswers:
    """Response by claim UID."""

    claims: Annotated[tuple[ClaimAnswer, ...], FieldNumber(1)] = ()


UnaryHandler = Callable[[bytes], bytes]


class PreparedClaims:
    """Claims that the kubelet has had prepared, also in a file; thread-safe.

    An empty ``path`` keeps them in memory only.
    """

    def __init__(self, files: Files, path: str) -> None:
        """Read the file of an agent that ran before; empty if it is missing or unreadable."""
        self._files = files
        self._path = path
        self._lock = threading.Lock()  # the kubelet prepares several claims at once
        self._claims: dict[str, ResourceClaim] = {}  # by key
        self._named: frozenset[str] = frozenset()  # keys of claims of the node's pods
        if not path:
            return
        try:
            restored = decode_lines(files.read(path))
        except MissingFileError:
            return
        except (HostError, InputError) as error:
            log.warning("prepared claims not restored", extra={"error": str(error)})
            return
        self._claims = {each.key: each for each in restored if isinstance(each, ResourceClaim)}
        self._named = frozenset(self._claims)

    def get(self, namespace: str, name: str, uid: str = "") -> ResourceClaim | None:
        """Return a claim if it is prepared; with a ``uid`` only that one."""
        claim = self._claims.get(f"{namespace}/{name}")
        return claim if claim is not None and uid in ("", claim.metadata.uid) else None

    def put(self, claim: ResourceClaim) -> None:
        """Keep a claim before the kubelet learns that it is prepared."""
        with self._lock:
            if self._claims.get(claim.key) != claim:
                self._claims[claim.key] = claim
                self._save()

    def drop(self, claim: ResourceClaim) -> None:
        """Forget a claim that was unprepared."""
        with self._lock:
            if self._claims.pop(claim.key, None) is not None:
                self._save()

    def keep(self, named: frozenset[str]) -> None:
        """Forget claims whose pods were deleted; ``named`` are the keys of claims of current pods.

        A kubelet that has lost its own state, as when its folder is deleted, unprepares nothing.  A
        claim whose pod has not been seen yet is kept.
        """
        with self._lock:
            ended = self._claims.keys() & (self._named - named)
            self._named = named
            for key in ended:
                del self._claims[key]
            if ended:
                self._save()

    def _save(self) -> None:
        if not self._path:
            return
        try:
            self._files.replace(self._path, encode_lines(self._claims.values()))
        except HostError as error:
            log.warning("prepared claims not written", extra={"error": str(error)})


class GpuClaims:
    """Handler of the kubelet's calls; thread-safe.  ``publish`` sets the GPUs of the node."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        on_registered: Callable[[], None],
        prepared: PreparedClaims,
    ) -> None:
        """Call ``on_registered`` when the kubelet has registered the plugin.

        The kubelet deletes ResourceSlices of a driver that was not registered for a while.
        """
        self._cluster, self._node = cluster, node
        self._on_registered = on_registered
        self._gpus: Mapping[int, DeviceInfo] = {}  # by minor; replaced, never changed
        #: Until unprepared: containers restart while the API server is unavailable.
        self._prepared_claims = prepared
        # Without an endpoint the kubelet calls on the socket on which it requested the info.
        self._info = PluginInfo(type=PLUGIN_TYPE, name=DRIVER, versions=(SERVICE,))

    @property
    def methods(self) -> Mapping[str, UnaryHandler]:
        """Handlers by method name."""
        return {
            "GetInfo": lambda _: encode_message(self._info),
            "NotifyRegistrationStatus": self._registered,
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }

    def publish(self, device: Device) -> None:
        """Set the GPUs of the node; claims may contain unhealthy ones."""
        self._gpus = {
            info.minor: info
            for info in device.spec.devices
            if info.type == _GPU and info.minor is not None and info.id
        }

    def keep_claims_of(self, pods: Iterable[Pod]) -> None:
        """Forget prepared claims of pods that are no longer on the node."""
        self._prepared_claims.keep(
            frozenset(
                f"{pod.metadata.namespace}/{name}"
                for pod in pods
                for _, name in claim_names(
                    pod.spec.resource_claims, pod.status.resource_claim_statuses
                )
                if name is not None
            )
        )

    def _registered(self, _: bytes) -> bytes:
        self._on_registered()
        return _NOTHING

    def _prepare(self, request: bytes) -> bytes:
        references = decode_message(ClaimReferences, request).claims
        answers = tuple(
            ClaimAnswer(uid=each.uid, prepared=self._prepare_claim(each)) for each in references
        )
        return encode_message(ClaimAnswers(claims=answers))

    def _unprepare(self, request: bytes) -> bytes:
        references = decode_message(ClaimReferences, request).claims
        for each in references:
            known = self._prepared_claims.get(each.namespace, each.name, each.uid)
            if known is not None:
                self._prepared_claims.drop(known)
        answers = tuple(ClaimAnswer(uid=each.uid) for each in references)
        return encode_message(ClaimAnswers(claims=answers))

    def _prepare_claim(self, reference: ClaimReference) -> PreparedClaim:
        try:
            claim = self._current(reference)
            devices = tuple(self._devices(claim, reference.uid))
            if devices:
                self._prepared_claims.put(claim)
            return PreparedClaim(devices=devices)
        except (ClusterError, HostError) as error:
            return PreparedClaim(error=str(error))

    def _current(self, reference: ClaimReference) -> ResourceClaim:
        """Return a claim; as it was prepared before, while the API server is unavailable.

        A restarted kubelet has the claims of running pods prepared again.  Raises ClusterError.
        """
        try:
            return self._cluster.get(ResourceClaim, reference.name, reference.namespace)
        except NotFoundError:
            raise
        except ClusterError:
            known = self._prepared_claims.get(reference.namespace, reference.name, reference.uid)
            if known is None:
                raise
            return known

    def _devices(self, claim: ResourceClaim, uid: str) -> list[PreparedDevice]:
        """Return the devices of a claim.  Raises HostError for one that this node can't prepare."""
        if claim.metadata.uid != uid:
            raise HostError(f"claim {claim.key} was replaced by another one of the same name")
        allocation = claim.status.allocation
        if allocation is None:
            raise HostError(f"claim {claim.key} has no allocation")
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

    # -- GPUs of a container -----------------------------------------------------------------

    def gpus_of(self, creation: ContainerCreation) -> tuple[DeviceAllocation, ...]:
        """Return the GPUs on this node that a container has by claims, smallest share first.

        The result has the form of the device annotation for a pod with the same requests.  Raises
        ClusterError if the pod or an unprepared claim can't be read, HostError for a replaced pod.
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
        """Return pod and container with their claims, which the runtime does not pass."""
        pod, container = creation.pod.pod, creation.container.spec
        if pod.spec.containers:
            return pod, container
        current = self._cluster.get(Pod, pod.metadata.name, pod.metadata.namespace)
        if current.metadata.uid != pod.metadata.uid:
            raise HostError(f"pod {creation.pod.key} was replaced by another one of the same name")
        every = (*current.spec.containers, *current.spec.init_containers)
        return current, next((each for each in every if each.name == container.name), container)

    def _gpus_in(self, namespace: str, name: str, request: str) -> tuple[ClaimedGpu, ...]:
        claim = self._prepared_claims.get(namespace, name)
        if claim is None:
            claim = self._cluster.get(ResourceClaim, name, namespace)
        return claimed_gpus(claim, request).get(self._node, ())

    def _granted(self, gpu: ClaimedGpu) -> TakenDevice:
        known = self._gpus.get(gpu.minor)
        return gpu.granted(amounts_of(_GPU, known.resources if known is not None else {}))
