"""Dynamic resource allocation: devices that drivers offer, and claims of devices.

Fields behind gates that are off in Kubernetes 1.35 say so.

Source: k8s.io/api resource/v1/types.go.
"""

import datetime as dt
from typing import ClassVar, Final

from msgspec import field

from koordinator.api.core import NodeSelector
from koordinator.api.meta import (
    ApiStruct,
    Condition,
    Int64,
    JsonObject,
    KubeObject,
    ObjectMeta,
)
from koordinator.foundation.quantity import Quantity

RESERVATIONS_MAX: Final = 256  # entries of ``status.reservedFor``
RESULTS_MAX: Final = 32  # devices of a claim
SUBREQUESTS_MAX: Final = 8  # of one ``firstAvailable``
DELETE_PROTECTION: Final = "resource.kubernetes.io/delete-protection"  # finalizer while allocated
ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"  # label of namespaces that may have it
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"  # annotation of a template's claim
#: annotation of a claim that a scheduler made for extended resources
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
#: with the name of a class after it: the extended resource that every class has
DEVICE_CLASS_RESOURCES: Final = "deviceclass.resource.kubernetes.io/"
EXACT_COUNT, ALL = "ExactCount", "All"  # values of ``allocationMode``


class OpaqueDeviceConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Parameters that only the driver understands."""

    driver: str
    parameters: JsonObject = {}


class DeviceConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration that a class passes to the drivers of its devices."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaimConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration that a claim passes to drivers for some of its requests; none: for all."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class CelDeviceSelector(ApiStruct, frozen=True, kw_only=True):
    """An expression of the Common Expression Language that is true of the devices meant."""

    expression: str


class DeviceSelector(ApiStruct, frozen=True, kw_only=True):
    """One of the conditions that a device must meet."""

    cel: CelDeviceSelector | None = None


class DeviceToleration(ApiStruct, frozen=True, kw_only=True):
    """A taint of devices that does not matter.  Gate DRADeviceTaints."""

    key: str = ""
    operator: str = "Equal"  # or Exists
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(ApiStruct, frozen=True, kw_only=True):
    """Requested amount of a device's capacity.  Gate DRAConsumableCapacity."""

    requests: dict[str, Quantity] = {}


class ExactDeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """One or more devices of a class; ``allocation_mode`` is ExactCount or All."""

    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[JsonObject, ...] = ()  # gate DRADerivedAttributes, never on here


class DeviceSubRequest(ApiStruct, frozen=True, kw_only=True):
    """One of the alternatives of a request."""

    name: str
    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[JsonObject, ...] = ()  # gate DRADerivedAttributes, never on here


class DeviceClaimRequest(ApiStruct, frozen=True, kw_only=True):
    """Exactly one of ``exactly`` and ``first_available`` is set."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(ApiStruct, frozen=True, kw_only=True):
    """Devices of some requests share the value of an attribute, or have different ones.

    ``distinct_attribute`` is behind the gate DRAConsumableCapacity.
    """

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """Requested devices, their constraints and their configuration."""

    requests: tuple[DeviceClaimRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """Requested devices of a claim."""

    devices: DeviceClaimSpec = DeviceClaimSpec()


class DeviceRequestAllocationResult(ApiStruct, frozen=True, kw_only=True):
    """A device that a request got; ``request`` is ``<request>/<subrequest>`` of alternatives."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] = {}


class DeviceAllocationConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration for the drivers; ``source`` is FromClass or FromClaim."""

    source: str
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True, kw_only=True):
    """The devices that a claim got, in the order of its requests."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class ClaimAllocation(ApiStruct, frozen=True, kw_only=True):
    """Allocated devices, and the nodes that can use them; without a selector: all nodes."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: dt.datetime | None = None


class ResourceClaimConsumerReference(ApiStruct, frozen=True, kw_only=True):
    """User of a claim: ``resource`` is pods for a pod."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True, kw_only=True):
    """State of an allocated device as its driver reports it."""

    driver: str
    pool: str
    device: str
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Allocation and users of a claim."""

    allocation: ClaimAllocation | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(KubeObject, frozen=True, kw_only=True):
    """Devices for the pods that name it."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceClaim"
    PLURAL: ClassVar[str] = "resourceclaims"

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    """The claim to be made; of the metadata labels and annotations count."""

    spec: ResourceClaimSpec
    metadata: ObjectMeta = ObjectMeta()


class ResourceClaimTemplate(KubeObject, frozen=True, kw_only=True):
    """A claim that each pod naming it gets for itself."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceClaimTemplate"
    PLURAL: ClassVar[str] = "resourceclaimtemplates"

    spec: ResourceClaimTemplateSpec


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    """Selectors of the devices of a class.

    Pods may request them by ``extended_resource_name`` as well.  Gate DRAExtendedResource.
    """

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(KubeObject, frozen=True, kw_only=True):
    """Devices that can be requested by one name."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "DeviceClass"
    PLURAL: ClassVar[str] = "deviceclasses"
    NAMESPACED: ClassVar[bool] = False

    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(ApiStruct, frozen=True, kw_only=True):
    """Exactly one is set; a version is a semantic one.

    Lists are behind the gate DRAListTypeAttributes.
    """

    int_value: Int64 | None = field(name="int", default=None)
    bool_value: bool | None = field(name="bool", default=None)
    string_value: str | None = field(name="string", default=None)
    version_value: str | None = field(name="version", default=None)
    int_values: tuple[Int64, ...] = field(name="ints", default=())
    bool_values: tuple[bool, ...] = field(name="bools", default=())
    string_values: tuple[str, ...] = field(name="strings", default=())
    version_values: tuple[str, ...] = field(name="versions", default=())


class CapacityRequestPolicyRange(ApiStruct, frozen=True, kw_only=True):
    """Amounts from ``min`` to ``max`` in steps."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True, kw_only=True):
    """Amounts of a capacity that can be requested.  Gate DRAConsumableCapacity."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(ApiStruct, frozen=True, kw_only=True):
    """Amount of one capacity of a device."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class CounterValue(ApiStruct, frozen=True, kw_only=True):
    """An amount that devices share."""

    value: Quantity


class CounterSet(ApiStruct, frozen=True, kw_only=True):
    """Amounts that devices of a pool share.  Gate DRAPartitionableDevices."""

    name: str
    counters: dict[str, CounterValue] = {}


class DeviceCounterConsumption(ApiStruct, frozen=True, kw_only=True):
    """Counters of a set that a device consumes.  Gate DRAPartitionableDevices."""

    counter_set: str
    counters: dict[str, CounterValue] = {}
    compatibility_groups: tuple[str, ...] = ()  # gate DRADeviceCompatibilityGroups


class DeviceTaint(ApiStruct, frozen=True, kw_only=True):
    """Keeps claims away from a device.  Gate DRADeviceTaints."""

    key: str
    effect: str  # None, NoSchedule or NoExecute
    value: str = ""
    time_added: dt.datetime | None = None


class NodeAllocatableMapping(ApiStruct, frozen=True, kw_only=True):
    """Amount of a resource of the node that a device models.

    Either ``device_multiplier`` per device, or the capacity consumed of ``capacity_key`` times
    ``capacity_multiplier``.
    """

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(ApiStruct, frozen=True, kw_only=True):
    """Amount of a resource of the node that the use of a device takes in addition."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(ApiStruct, frozen=True, kw_only=True):
    """A resource of the node that a device takes.  Gate DRANodeAllocatableResources."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class PoolDevice(ApiStruct, frozen=True, kw_only=True):
    """A device as its driver offers it; Kubernetes calls it Device."""

    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}


class ResourcePool(ApiStruct, frozen=True, kw_only=True):
    """Slices of one generation that belong together; older generations don't count."""

    name: str
    resource_slice_count: Int64 = 0  # required: an encoder leaves out what is as by default
    generation: Int64 = 0


class ResourceSliceSpec(ApiStruct, frozen=True, kw_only=True):
    """Devices of one driver, and which nodes reach them."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[PoolDevice, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()
    skip_node_operations: tuple[str, ...] = ()  # gate DRAOptionalNodeOperations


class ResourceSlice(KubeObject, frozen=True, kw_only=True):
    """Devices that a driver offers."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceSlice"
    PLURAL: ClassVar[str] = "resourceslices"
    NAMESPACED: ClassVar[bool] = False

    spec: ResourceSliceSpec


class DeviceTaintSelector(ApiStruct, frozen=True, kw_only=True):
    """Selector of devices by all given fields; without fields, of all devices."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True, kw_only=True):
    """A taint, and the devices that get it.

    An empty selector selects every device.  None selects none, before v1 every device.
    """

    taint: DeviceTaint
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(KubeObject, frozen=True, kw_only=True):
    """Taints devices beside what their drivers say; on by default from Kubernetes 1.37 on.

    Its status describes evictions for people.
    Source: k8s.io/api resource/v1/types.go.
    """

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "DeviceTaintRule"
    PLURAL: ClassVar[str] = "devicetaintrules"
    NAMESPACED: ClassVar[bool] = False

    spec: DeviceTaintRuleSpec


class DeviceTaintRuleV1Beta2(DeviceTaintRule, frozen=True, kw_only=True):
    """The same in Kubernetes 1.36."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1beta2"


class DeviceTaintRuleV1Alpha3(DeviceTaintRule, frozen=True, kw_only=True):
    """The same in Kubernetes 1.33 to 1.35."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1alpha3"


#: All versions of one kind; the first one selects nothing without a selector.
TAINT_RULE_KINDS = (DeviceTaintRule, DeviceTaintRuleV1Beta2, DeviceTaintRuleV1Alpha3)

KINDS = (ResourceClaim, ResourceClaimTemplate, DeviceClass, *TAINT_RULE_KINDS, ResourceSlice)
