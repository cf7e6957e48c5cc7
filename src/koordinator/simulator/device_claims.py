"""ResourceClaim controller: creates claims from templates and releases them when pods end.

kube-controller-manager does this in a cluster.  A reservation for a pod that was never observed
stays, as the loaded objects may be a part of a cluster.

Source: kubernetes pkg/controller/resourceclaim/controller.go ``syncPod``, ``syncPodGroup``,
``syncClaim``.
"""

from contextlib import suppress

from msgspec.structs import replace

from koordinator.api.dynamic_resources import (
    DELETE_PROTECTION,
    POD_CLAIM_NAME,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimTemplate,
)
from koordinator.api.meta import ObjectMeta, OwnerReference
from koordinator.api.pod import Pod, PodResourceClaim, PodResourceClaimStatus, is_terminal
from koordinator.api.pod_groups import PodGroupResourceClaimStatus, SchedulingPodGroup
from koordinator.cluster.port import Cluster, EventType, Watch
from koordinator.domain.dynamic_resources.allocation import (
    PODS,
    claim_name_of,
    is_reserved_for,
    is_shared,
    without_allocation,
    without_consumer,
)
from koordinator.domain.dynamic_resources.extended_resources import owner_of
from koordinator.foundation.errors import NotFoundError


class DeviceClaimController:
    """Controller that processes the events since its last step.

    It watches pods and their groups only after the first claim or template.
    """

    def __init__(self, cluster: Cluster, groups: type[SchedulingPodGroup] | None = None) -> None:
        """Watch claims and templates.

        ``groups`` is the kind of PodGroups whose claims their pods share; None: no claims are.
        """
        self._cluster, self._groups = cluster, groups
        self._claims_watch = cluster.watch([ResourceClaimTemplate, ResourceClaim])
        self._owners_watch: Watch | None = None
        self._claims: dict[str, ResourceClaim] = {}
        self._owners: dict[str, str] = {}  # by pod uid: claim for extended resources
        self._new_users: list[tuple[ResourceClaim, ResourceClaimConsumerReference]] = []
        self._new_extended: list[ResourceClaim] = []  # claims for extended resources
        self._waiting: dict[str, Pod] = {}  # pods whose claims wait for a template

    def step(self) -> bool:
        """Create and release claims; return whether there was work."""
        if not self._process_claims() and self._owners_watch is None:
            return False
        if self._owners_watch is None:
            owners = (Pod,) if self._groups is None else (Pod, self._groups)
            self._owners_watch = self._cluster.watch(owners)
        did: list[bool] = []
        for event in self._owners_watch.poll():
            owner, is_deleted = event.object, event.type is EventType.DELETED
            if isinstance(owner, Pod) and (
                owner.spec.resource_claims or owner.metadata.uid in self._owners
            ):
                did.append(self._process_pod(owner, is_deleted=is_deleted))
            elif isinstance(owner, SchedulingPodGroup) and is_deleted:
                did.append(self._release(owner, is_deleted=True))
        for key, pod in list(self._waiting.items()):
            made = self._make(pod)
            did.append(made)
            if made or not _missing_claims(pod):
                del self._waiting[key]
        did += [self._release_late_use(claim, user) for claim, user in self._new_users]
        self._new_users.clear()
        did += [self._delete_orphan(claim) for claim in self._new_extended]
        self._new_extended.clear()
        return any(did)

    def _process_claims(self) -> bool:
        """Return whether there were events of claims or templates."""
        has_news = False
        for event in self._claims_watch.poll():
            has_news |= event.type is not EventType.BOOKMARK
            if isinstance(event.object, ResourceClaim):
                if event.type is EventType.DELETED:
                    self._claims.pop(event.object.key, None)
                    self._owners.pop(owner_of(event.object), None)
                else:
                    self._store_claim(event.object)
        return has_news

    def _store_claim(self, claim: ResourceClaim) -> None:
        known, owner = self._claims.get(claim.key), owner_of(claim)
        self._claims[claim.key] = claim
        if owner:
            self._owners[owner] = claim.key
            if known is None:
                self._new_extended.append(claim)
        if known is not None:
            self._new_users += [
                (claim, user)
                for user in claim.status.reserved_for
                if user.resource == PODS
                if not is_reserved_for(known, user.uid)
            ]

    def _release_late_use(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> bool:
        """Release a claim that was reserved for a pod after the pod had ended."""
        meta = claim.metadata
        with suppress(NotFoundError):
            pod = self._cluster.get(Pod, user.name, meta.namespace)
            if pod.metadata.uid == user.uid and not is_terminal(pod):
                return False
        with suppress(NotFoundError):
            self._end_use(claim, user.uid)
        return True

    def _delete_orphan(self, claim: ResourceClaim) -> bool:
        """Delete a claim for extended resources that was created after its pod was deleted."""
        meta = claim.metadata
        owner = next(one for one in meta.owner_references if one.controller)
        with suppress(NotFoundError):
            if self._cluster.get(Pod, owner.name, meta.namespace).metadata.uid == owner.uid:
                return False
        with suppress(NotFoundError):
            self._end_use(claim, owner.uid)
            self._cluster.delete(ResourceClaim, meta.name, meta.namespace, uid=meta.uid)
        return True

    def _process_pod(self, pod: Pod, *, is_deleted: bool) -> bool:
        """Return whether a claim was released."""
        if not is_deleted and not is_terminal(pod):
            self._waiting[pod.key] = pod
            return False
        self._waiting.pop(pod.key, None)
        return self._release(pod, is_deleted=is_deleted)

    def _make(self, pod: Pod) -> bool:
        """Create the missing claims of a pod whose templates exist; return whether there were."""
        missing, meta = _missing_claims(pod), pod.metadata
        if not missing or meta.deletion_timestamp is not None:
            return False
        made: list[PodResourceClaimStatus] = []
        for entry in missing:
            try:
                group = self._group_of(pod)
                if group is not None and is_shared(entry, group):
                    made.append(self._of_group(group, entry))
                else:
                    made.append(self._create(pod, entry))
            except NotFoundError:
                continue
        if not made:
            return False
        stored = self._cluster.get(Pod, meta.name, meta.namespace)
        statuses = (*stored.status.resource_claim_statuses, *made)
        status = replace(stored.status, resource_claim_statuses=statuses)
        self._cluster.update_status(replace(stored, status=status))
        return True

    def _group_of(self, pod: Pod) -> SchedulingPodGroup | None:
        """Return the PodGroup of a pod if claims of groups are shared.  Raises NotFoundError."""
        reference = pod.spec.scheduling_group
        if self._groups is None or reference is None:
            return None
        return self._cluster.get(self._groups, reference.pod_group_name, pod.metadata.namespace)

    def _of_group(
        self, group: SchedulingPodGroup, entry: PodResourceClaim
    ) -> PodResourceClaimStatus:
        """Return the claim of a group's entry; the first of its pods has it created."""
        name = claim_name_of(group, entry)
        if name:
            return PodResourceClaimStatus(name=entry.name, resource_claim_name=name)
        made = self._create(group, entry)
        known = PodGroupResourceClaimStatus(
            name=made.name, resource_claim_name=made.resource_claim_name
        )
        statuses = (*group.status.resource_claim_statuses, known)
        status = replace(group.status, resource_claim_statuses=statuses)
        self._cluster.update_status(replace(group, status=status))
        return made

    def _create(
        self, owner: Pod | SchedulingPodGroup, entry: PodResourceClaim
    ) -> PodResourceClaimStatus:
        """Create the claim of an entry from its template.  Raises NotFoundError."""
        name = entry.resource_claim_template_name or ""
        template = self._cluster.get(ResourceClaimTemplate, name, owner.metadata.namespace)
        claim = self._cluster.create(_claim_of(owner, entry, template))
        return PodResourceClaimStatus(name=entry.name, resource_claim_name=claim.metadata.name)

    def _release(self, owner: Pod | SchedulingPodGroup, *, is_deleted: bool) -> bool:
        """Release the claims of an ended pod or group; delete those created for a deleted one."""
        did = False
        for claim in list(self._claims.values()):
            if claim.metadata.namespace != owner.metadata.namespace:
                continue
            uid = owner.metadata.uid
            is_own = claim.metadata.is_controlled_by(uid)
            if not is_own and not is_reserved_for(claim, uid):
                continue
            with suppress(NotFoundError):
                self._end_use(claim, uid)
                did = True
                # Without its finalizer a claim in deletion may already be removed.
                if is_own and is_deleted:
                    meta = claim.metadata
                    self._cluster.delete(ResourceClaim, meta.name, meta.namespace)
        return did

    def _end_use(self, claim: ResourceClaim, uid: str) -> None:
        meta = claim.metadata
        stored = self._cluster.get(ResourceClaim, meta.name, meta.namespace)
        free = without_consumer(stored, uid)
        is_protected = DELETE_PROTECTION in free.metadata.finalizers
        if not free.status.reserved_for and (free.status.allocation is not None or is_protected):
            free = without_allocation(free)
        if free is stored:
            return
        status = self._cluster.update_status(free)
        if free.metadata.finalizers != stored.metadata.finalizers:
            finalizers = free.metadata.finalizers
            self._cluster.update(
                replace(status, metadata=replace(status.metadata, finalizers=finalizers))
            )


def _missing_claims(pod: Pod) -> list[PodResourceClaim]:
    """Return the entries of a pod whose claims have not been created."""
    made = {status.name for status in pod.status.resource_claim_statuses}
    return [
        entry
        for entry in pod.spec.resource_claims
        if entry.resource_claim_template_name is not None and entry.name not in made
    ]


def _claim_of(
    of: Pod | SchedulingPodGroup, entry: PodResourceClaim, template: ResourceClaimTemplate
) -> ResourceClaim:
    """Return the claim of an entry, owned by the pod or its group."""
    wanted, meta = template.spec.metadata, of.metadata
    owner = OwnerReference(
        api_version=of.API_VERSION,
        kind=of.KIND,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            generate_name=f"{meta.name}-{entry.name}-",
            namespace=meta.namespace,
            labels=wanted.labels,
            annotations={**wanted.annotations, POD_CLAIM_NAME: entry.name},
            owner_references=(owner,),
        ),
        spec=template.spec.spec,
    )
