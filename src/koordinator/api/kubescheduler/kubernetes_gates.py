"""Feature gates of Kubernetes that kube-scheduler knows, release by release.

Source: kubernetes 1.33.13, 1.34.4, 1.35.4, 1.36.3 and 1.37.2: pkg/features/kube_features.go, and
the gates of apiserver, apiextensions-apiserver, client-go, component-base and controller-manager.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from koordinator.api.kube_version import OLDEST, SERVED, V1_35, KubeVersion
from koordinator.foundation.lazy_dataclass import dataclass

_ABSENT: Final = "."
_NEEDS_SINCE: Final = V1_35  # earlier releases do not check what a gate needs

#: Name, one state per release from 1.33 on, and the gates that it needs from 1.35 on (">=36": from
#: 1.36 on), without locked ones.  A state is the stage, + or - for the default, and L where the
#: default is locked.
_TABLE: Final = """
APIResponseCompression B+ B+ B+ B+ B+
APIServerIdentity B+ B+ B+ B+ B+
APIServerTracing B+ G+L G+L G+L .
APIServerWebhookAuthenticationToken . . . . A-
APIServingWithRoutine A- A- A- A- A-
AggregatedDiscoveryRemoveBetaType D+ D+ D+L D+L D+L
AllowDNSOnlyNodeCSR D- D- D- D- D-
AllowInsecureKubeletCertificateSigningRequests D- D- D- D- D-
AllowOverwriteTerminationGracePeriodSeconds D- D- D+L D+L D+L
AllowParsingUserUIDFromCertAuth B+ B+ B+ B+ B+
AllowServiceExternalIPs . . . G+ G+
AllowServiceLBStatusOnNonLB D+L D+L . . .
AllowUnsafeMalformedObjectDeletion A- A- A- A- B+
AnonymousAuthConfigurableEndpoints B+ G+L G+L G+L .
AnyVolumeDataSource G+L G+L G+L G+L .
AtomicFIFO . . . B+ B+
AtomicWriteVolumeUserFields . . . . A-
AuthorizeNodeWithSelectors B+ G+L G+L G+L . AuthorizeWithSelectors
AuthorizePodWebsocketUpgradeCreatePermission . . B+ B+ B+
AuthorizeWithSelectors B+ G+L G+L G+L .
BtreeWatchCache G+L G+L G+L G+L .
CBORServingAndStorage A- A- A- A- A-
CPUManagerPolicyAlphaOptions A- A- A- A- A-
CPUManagerPolicyBetaOptions B+ B+ B+ B+ B+
CPUManagerPolicyOptions G+L G+L G+L G+L G+L
CRDObservedGenerationTracking . . B- B+ B+
CRDValidationRatcheting G+L G+L G+L G+L G+L
CRIListStreaming . . . A- A-
CSIMigrationPortworx G+L G+L G+L . .
CSIServiceAccountTokenSecrets . . B+ G+L G+L
CSIVolumeHealth A- A- A- A- A-
ChangeContainerStatusOnKubeletRestart . . D- D- D-
ClearingNominatedNodeNameAfterBinding . A- B+ B+ B+
ClientsAllowCARotation . . . B+ B+
ClientsAllowCBOR . . A- A- A-
ClientsAllowTLSCacheGC . . . B+ B+
ClientsPreferCBOR . . A- A- A-
CloudControllerManagerWatchBasedRoutesReconciliation . . A- A- A-
CloudControllerManagerWebhook A- A- A- A- A-
ClusterTrustBundle B- B- B- B- G+
ClusterTrustBundleProjection B- B- B- B- G+ ClusterTrustBundle
ComponentFlagz A- A- A- B+ B+
ComponentSLIs G+L G+L . . .
ComponentStatusz A- A- A- B+ B+
CompositePodGroup . . . . A- GenericWorkload,TopologyAwareWorkloadScheduling
ConcurrentWatchObjectDecode B- B- B- B- B+
ConsistentListFromCache B+ G+L G+L G+L .
ConsistentListFromCacheSkipTimeoutFallback . . . . A-
ConstrainedImpersonation . . A- B+ B+
ContainerCheckpoint B+ B+ B+ B+ B+
ContainerRestartRules . A- B+ B+ B+
ContainerStopSignals A- A- A- A- A-
ContextualLogging B+ B+ B+ B+ B+
ControllerManagerReleaseLeaderElectionLockOnExit . . . A- A-
CoordinatedLeaderElection B- B- B- B- B-
CronJobsScheduledAnnotation G+L G+L . . .
CrossNamespaceVolumeDataSource A- A- A- A- A-
CustomCPUCFSQuotaPeriod A- A- A- G+ G+
CustomResourceFieldSelectors G+L G+L G+L G+L G+L
DRAAdminAccess A- B+ B+ G+L G+L
DRAConsumableCapacity . A- A- B+ B+
DRADerivedAttributes . . . . A-
DRADeviceBindingConditions . A- A- B+ B+ DRAResourceClaimDeviceStatus
DRADeviceCompatibilityGroups . . . . A- DRAPartitionableDevices
DRADeviceTaintRules . . A- B- G+ DRADeviceTaints
DRADeviceTaints A- A- A- B+ G+
DRAExtendedResource . A- A- B+ G+L
DRAFractionalCapacityRange . . . . B+ DRAConsumableCapacity
DRAListTypeAttributes . . . A- A-
DRANodeAllocatableResources . . . A- A-
DRAOptionalNodeOperations . . . . A- NodeDeclaredFeatures
DRAPartitionableDevices A- A- A- B+ B+
DRAPartitionableDevicesType . . . . A- DRAPartitionableDevices,DRAResourcePoolStatus
DRAPrioritizedList A- B+ B+ G+ G+L
DRAResourceClaimDeviceStatus B+ B+ B+ B+ G+L
DRAResourceClaimGranularStatusAuthorization . . . B+ B+ DRAResourceClaimDeviceStatus
DRAResourcePoolStatus . . . A- A-
DRASchedulerFilterTimeout . B+ B+ B+ B+
DRAWorkloadResourceClaims . . . A- B- GenericWorkload
DeclarativeValidation B+ B+ B+ G+L G+L
DeclarativeValidationBeta . . . B+ B+ DeclarativeValidation
DeclarativeValidationTakeover B- B- B- D- D+L DeclarativeValidation
DefaultPodSysctls . . . . A-
DeploymentReplicaSetTerminatingReplicas A- A- B+ B+ B+
DetectCacheInconsistency . B+ B+ B+ B+
DevicePluginCDIDevices G+L . . . .
DisableAllocatorDualWrite B- G+ G+L G+L G+L MultiCIDRServiceAllocator
DisableCPUQuotaWithExclusiveCPUs B+ B+ B+ D+ D+L
DisableNodeKubeProxyVersion D+ D+ D+ D+L D+L
DynamicResourceAllocation B- G+ G+L G+L G+L
ElasticIndexedJob G+L . . . .
EmptyDirVolumeMode . . . . A-
EnvFiles . A- B+ B+ B+
EtcdRangeStream . . . . B+
EventedPLEG A- A- A- A- A- PLEGOnDemandRelist>=37
EvictionRequestAPI . . . . A-
ExcludeAdmissionWebhookVirtualResources . . . . B+
ExecProbeTimeout G+ G+ G+L G+L G+L
ExtendWebSocketsToKubelet . . . B+ B+ NodeDeclaredFeatures
ExternalServiceAccountTokenSigner A- B+ B+ G+L G+L
GRPCContainerProbeTLS . . . . A-
GangScheduling . . A- A- . GenericWorkload
GenericWorkload . . A- A- B-
GitRepoVolumeDriver D- D- D- D+L D+L
GracefulNodeShutdown B+ B+ B+ B+ B+
GracefulNodeShutdownBasedOnPodPriority B+ B+ B+ B+ B+ GracefulNodeShutdown
H2CContainerProbe . . . . A- NodeDeclaredFeatures
HPAConfigurableTolerance A- A- B+ B+ G+L
HPAGeneration . . . . B+
HPAOptimizedSelectorStore . . . . B+
HPAScaleToZero A- A- A- A- B+
HonorPVReclaimPolicy G+L G+L G+L . .
HostnameOverride . A- B+ B+ G+L
HugepageAwareEviction . . . . B+
ImageMaximumGCAge B+ B+ G+L G+L G+L
ImageVolume B- B- B+ G+L G+L
ImageVolumeWithDigest . . . A- A- ImageVolume
InOrderInformers . . B+ G+L G+L
InOrderInformersBatchProcess . . B+ B+ B+
InPlacePodLevelResourcesVerticalScaling . . A- B+ B+ InPlacePodVerticalScaling,NodeDeclaredFeatures,PodLevelResources
InPlacePodVerticalScaling B+ B+ G+L G+L G+L
InPlacePodVerticalScalingAllocatedStatus D- D- D- . . InPlacePodVerticalScaling
InPlacePodVerticalScalingExclusiveCPUs A- A- A- A- A- InPlacePodVerticalScaling
InPlacePodVerticalScalingExclusiveMemory . A- A- A- A- InPlacePodVerticalScaling,MemoryManager
InPlacePodVerticalScalingInitContainers . . . B+ G+L InPlacePodVerticalScaling,NodeDeclaredFeatures
InPlacePodVerticalScalingMemoryBackedVolumes . . . . A- InPlacePodVerticalScaling,NodeDeclaredFeatures
InPlacePodVerticalScalingSchedulerPreemption . . . . A- InPlacePodVerticalScaling
InTreePluginPortworxUnregister A- A- A- . .
InformerResourceVersion . . G+ G+ G+
InterPodAffinityHostnameFastPath . . . . A-
JobBackoffLimitPerIndex G+L G+L G+L G+L .
JobManagedBy B+ B+ G+L G+L G+L
JobPodReplacementPolicy B+ G+L G+L G+L .
JobSuccessPolicy G+L G+L G+L G+L .
KMSv1 D- D- D- D- D-
KubeProxyIPVS . . . . D+
KubeProxyNFTablesLocalhostNodePorts . . . . A-
KubeletAllocatedPodsEndpoint . . . . A- InPlacePodVerticalScaling
KubeletCgroupDriverFromCRI B+ G+L G+L G+L G+L
KubeletCrashLoopBackOffMax A- A- B+ B+ B+
KubeletEnsureSecretPulledImages A- A- B+ B+ B+
KubeletFineGrainedAuthz B+ B+ B+ G+L G+L
KubeletInUserNamespace A- A- A- A- B+
KubeletPSI A- B+ B+ G+L G+L
KubeletPodResourcesDynamicResources A- B+ B+ G+L G+L
KubeletPodResourcesGet A- B+ B+ G+L G+L
KubeletPodResourcesListUseActivePods . D+ D+ D+ D+
KubeletRegistrationGetOnExistsOnly D- D- D- D- D-
KubeletSeparateDiskGC B+ B+ B+ B+ B+
KubeletServiceAccountTokenForCredentialProviders A- B+ B+ B+ B+
KubeletTracing B+ G+L G+L G+L G+L
LegacySidecarContainers D- . . . .
ListFromCacheSnapshot A- B+ B+ B+ B+
LoadBalancerIPMode G+L G+L . . .
LocalStorageCapacityIsolationFSQuotaMonitoring B- B- B- B- B-
LogarithmicScaleDown G+L G+L G+L G+L .
LoggingAlphaOptions A- A- A- A- A-
LoggingBetaOptions B+ B+ B+ B+ B+
ManifestBasedAdmissionControlConfig . . . A- B+
MatchLabelKeysInPodAffinity G+L G+L G+L G+L G+L
MatchLabelKeysInPodTopologySpread B+ B+ B+ B+ B+
MatchLabelKeysInPodTopologySpreadSelectorMerge . B+ B+ B+ B+ MatchLabelKeysInPodTopologySpread
MaxUnavailableStatefulSet A- A- B- B- B+
MemoryManager G+L G+L G+L . .
MemoryQoS A- A- A- A- B+
MultiCIDRServiceAllocator G+ G+L G+L G+L G+L
MutableCSINodeAllocatableCount A- B- B+ G+L G+L
MutablePVNodeAffinity . . A- A- A-
MutablePodResourcesForSuspendedJobs . . A- B+ B+
MutableSchedulingDirectivesForSuspendedJobs . . A- B+ B+
MutatingAdmissionPolicy A- B- B- G+ G+
NFTablesNetlink . . . . B+
NFTablesProxyMode G+L G+L G+L G+L G+L
NativeHistograms . . . A- B+
NodeControllerLeaseCircuitBreaker . . . . B+ AtomicFIFO
NodeDeclaredFeatures . . A- B+ G+L
NodeInclusionPolicyInPodTopologySpread G+L G+L G+L G+L G+L
NodeLifecycleConditions . . . . A-
NodeLogQuery B- B- B- G+L G+L
NodeSwap B+ G+L G+L G+L G+L
NominatedNodeNameForExpectation . A- B+ B+ B+
OpenAPIEnums B+ B+ B+ B+ B+
OpportunisticBatching . . B+ B+ B+
OrderedNamespaceDeletion B+ G+L G+L G+L .
PLEGOnDemandRelist . . . B+ G+L
PersistentVolumeClaimUnusedSinceTime . . . A- B+
PodAndContainerStatsFromCRI A- A- A- A- B-
PodCertificateRequest . A- B- B- G+ AuthorizeNodeWithSelectors
PodDeletionCost B+ B+ B+ B+ B+
PodDisruptionConditions G+L . . . .
PodGroupPreemptionPolicy . . . . A- GenericWorkload
PodIndexLabel G+L G+L . . .
PodLevelResourceManagers . . . A- B- PodLevelResources
PodLevelResources A- B+ B+ B+ B+
PodLevelResourcesFixDefaulting . . . . B+ PodLevelResources
PodLevelResourcesFixKubeletQOSClass . . . . B+ PodLevelResources
PodLifecycleSleepAction B+ G+L G+L G+L .
PodLifecycleSleepActionAllowZero B+ G+L G+L G+L . PodLifecycleSleepAction
PodLogsQuerySplitStreams A- A- A- A- A-
PodObservedGenerationTracking A- B+ G+L G+L G+L
PodReadyToStartContainersCondition B+ B+ B+ B+ G+L
PodSchedulingReadiness G+L G+L G+L G+L G+L
PodTopologyLabelsAdmission A- A- B+ B+ B+
PodsAPI . . . A- B+
PortForwardWebsockets B+ B+ B+ B+ B+
PreferSameTrafficDistribution A- B+ G+L G+L G+L
PreventStaticPodAPIReferences . B+ B+ B+ .
ProbeHostPodSecurityStandards . G+L . . .
ProcMountType B+ B+ B+ G+L G+L UserNamespacesSupport
QOSReserved A- A- A- A- A-
RecoverVolumeExpansionFailure B+ G+L G+L G+L G+L
RecursiveReadOnlyMounts G+L G+L G+L G+L G+L
ReduceDefaultCrashLoopBackOffDecay A- A- A- A- A-
RelaxedDNSSearchValidation B+ G+L G+L G+L .
RelaxedEnvironmentVariableValidation B+ G+L G+L G+L G+L
RelaxedServiceNameValidation . A- A- B+ G+L
ReloadKubeletClientCAFile . . . B+ B+
ReloadKubeletServerCertificateFile B+ B+ B+ B+ B+
RemoteRequestHeaderUID B+ B+ B+ B+ B+
ResilientWatchCacheInitialization B+ G+L G+L G+L .
ResourceHealthStatus A- A- A- B+ B+
ResourceHealthStatusMessage . . . B+ B+ ResourceHealthStatus
RestartAllContainersOnContainerExits . . A- B+ B+ ContainerRestartRules,NodeDeclaredFeatures
RetryGenerateName G+L G+L G+L G+L .
RotateKubeletServerCertificate B+ B+ B+ B+ B+
RuntimeClassInImageCriApi A- A- A- A- A-
SELinuxChangePolicy B+ B+ B+ G+L G+L
SELinuxMount B- B- B- B- G+
SELinuxMountReadWriteOncePod B+ B+ B+ G+L G+L
SchedulerAsyncAPICalls . B- B- B- B-
SchedulerAsyncPreemption B+ B+ B+ B+ B+
SchedulerPopFromBackoffQ B+ B+ B+ B+ B+
SchedulerPreQueueingHints . . . . A-
SchedulerQueueingHints B+ G+L G+L G+L .
SeparateCacheWatchRPC D- D- D- D+L D+L
SeparateTaintEvictionController B+ G+L G+L G+L G+L
ServiceAccountNodeAudienceRestriction B+ B+ B+ B+ B+
ServiceAccountTokenJTI G+L G+L G+L G+L G+L
ServiceAccountTokenNodeBinding G+L G+L G+L G+L G+L ServiceAccountTokenNodeBindingValidation
ServiceAccountTokenNodeBindingValidation G+L G+L G+L G+L G+L
ServiceAccountTokenPodNodeInfo G+L G+L G+L G+L G+L
ServiceCIDRStatusFieldWiping . . . D+ D+
ServiceTrafficDistribution G+L G+L G+L . .
ShardedListAndWatch . . . A- A-
SidecarContainers G+L G+L G+L G+L .
SizeBasedListCostEstimate . B+ B+ B+ B+
SizeMemoryBackedVolumes G+L G+L . . .
StaleControllerConsistencyDaemonSet . . . B+ B+ AtomicFIFO
StaleControllerConsistencyHPA . . . . B+ AtomicFIFO
StaleControllerConsistencyJob . . . B+ B+ AtomicFIFO
StaleControllerConsistencyReplicaSet . . . B+ B+ AtomicFIFO
StaleControllerConsistencyStatefulSet . . . B+ B+ AtomicFIFO
StatefulSetAutoDeletePVC G+L G+L . . .
StatefulSetRecreateStrategy . . . . A-
StatefulSetStartOrdinal G+L . . . .
StorageCapacityScoring A- A- A- A- B+
StorageNamespaceIndex D+ D+ D+ D+ D+
StorageVersionAPI A- A- A- A- A- APIServerIdentity
StorageVersionHash B+ B+ B+ B+ B+
StorageVersionMigrator A- A- B- B- G+
StreamingCollectionEncodingToJSON B+ G+L G+L G+L .
StreamingCollectionEncodingToProtobuf B+ G+L G+L G+L .
StrictCostEnforcementForVAP G+L G+L . . .
StrictCostEnforcementForWebhooks G+L G+L . . .
StrictIPCIDRValidation A- A- A- B+ B+
StructuredAuthenticationConfiguration B+ G+L G+L G+L .
StructuredAuthenticationConfigurationEgressSelector . B+ B+ B+ B+ StructuredAuthenticationConfiguration
StructuredAuthenticationConfigurationJWKSMetrics . . B+ B+ B+ StructuredAuthenticationConfiguration
StructuredAuthorizationConfiguration G+L G+L G+L . .
SupplementalGroupsPolicy B+ B+ G+L G+L G+L
SystemdWatchdog B+ B+ G+L G+L G+L
TaintTolerationComparisonOperators . . A- A- A-
TokenRequestServiceAccountUIDValidation . B+ B+ B+ B+
TopologyAwareHints G+L G+L G+L . .
TopologyAwareWorkloadScheduling . . . A- A- GenericWorkload
TopologyManagerPolicyAlphaOptions A- A- A- A- A-
TopologyManagerPolicyBetaOptions B+ B+ B+ B+ B+
TopologyManagerPolicyOptions G+ G+ G+ G+L G+L
TranslateStreamCloseWebsocketRequests B+ B+ B+ B+ B+
UnauthenticatedHTTP2DOSMitigation B+ B+ B+ B+ B+
UnknownVersionInteroperabilityProxy A- A- A- B+ B+ APIServerIdentity
UnlockWhileProcessingFIFO . . . B+ B+
UserNamespacesHostNetworkSupport . . A- A- A- NodeDeclaredFeatures>=36,UserNamespacesSupport
UserNamespacesPodSecurityStandards A- A- . . .
UserNamespacesSupport B+ B+ B+ G+L G+L
VolumeAttributesClass B- G+ G+ G+L G+L
VolumeBindMountOptions . . . . A-
VolumeLimitScaling . . A- A- B+
WatchCacheInitializationPostStartHook B- B- B- B+ G+L
WatchFromStorageWithoutResourceVersion D+L D+L D+L . .
WatchList B- B+ B+ B+ B+
WatchListClient . . B+ B+ B+
WatchListCompression . . . . B+
WebhookRoundTripLoadBalancing . . . . B+
WinDSR B+ G+L G+L G+L G+L
WinOverlay B+ G+L G+L G+L G+L
WindowsCPUAndMemoryAffinity A- A- A- A- A- MemoryManager
WindowsGracefulNodeShutdown A- B+ B+ B+ B+ GracefulNodeShutdown
WindowsHostNetwork D- D- D- D- D-
WorkloadAwarePreemption . . . A- . GangScheduling
WorkloadWithJob . . . A- A- GenericWorkload
"""  # noqa: E501 -- one gate a line


@dataclass(frozen=True, slots=True)
class GateSpec:
    """A gate in one release: its stage, its default, and the gates that it needs."""

    stage: str  # A alpha, B beta, G general availability, D deprecated
    is_on: bool
    is_locked: bool
    needs: tuple[str, ...] = ()


@cache
def kubernetes_gates(level: KubeVersion) -> Mapping[str, GateSpec]:
    """Return the gates of a release by name."""
    gates: dict[str, GateSpec] = {}
    for name, states, needs in _rows():
        state = states[level.minor - OLDEST.minor]
        if state != _ABSENT:
            needed = tuple(
                gate for gate, _, since in needs if level.minor >= int(since or _NEEDS_SINCE.minor)
            )
            gates[name] = GateSpec(state[0], state[1] == "+", state.endswith("L"), needed)
    return gates


@cache
def served_levels(name: str) -> tuple[KubeVersion, ...]:
    """Return the releases that know a gate; none if Kubernetes has no such gate."""
    return tuple(level for level in SERVED if name in kubernetes_gates(level))


_Need = tuple[str, str, str]


def _rows() -> list[tuple[str, list[str], list[_Need]]]:
    rows = []
    for line in _TABLE.strip().splitlines():
        name, *states = line.split()
        needs = states[len(SERVED) :]
        parts = [each.partition(">=") for each in needs[0].split(",")] if needs else []
        rows.append((name, states[: len(SERVED)], parts))
    return rows
