"""Remedies for claims that no devices of a node satisfy: changes of claims, slices and pods."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from koordinator.api.dynamic_resources import ResourceClaim, ResourceSlice
from koordinator.domain.dynamic_resources.allocator import is_tolerated
from koordinator.domain.dynamic_resources.inventory import InventoryDevice, Pool
from koordinator.domain.dynamic_resources.requests import PendingClaim, RequestOption
from koordinator.domain.node_selection import FORBIDDING
from koordinator.foundation.text import listed
from koordinator.scheduler.contract import ObjectRemedy
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims
from koordinator.scheduler.plugins.dynamic_resources.device_ledger import DeviceLedger
from koordinator.scheduler.plugins.dynamic_resources.messages import is_free, is_selected
from koordinator.scheduler.snapshot import ObjectTable

PODS = "pods"
SINGLY = 8  # claims that are tried alone, and up to which each number of claims is tried
NAMED = 3  # pods or claims in a text


def claim_remedies(
    ledger: DeviceLedger, objects: ObjectTable, row: int, node: str, claims: PodDeviceClaims
) -> Iterator[ObjectRemedy]:
    """Yield changes of objects after which the devices of a node might satisfy pending claims."""
    pools = ledger.pools(row, claims.avoids)
    released = [*_released(ledger, objects, pools, node, claims)]
    untainted = [*_untainted(objects, pools, claims)]
    yield from (*released, *untainted)
    for first in untainted:
        for other in released:
            text = f"{first.text}; then {other.text}"
            yield ObjectRemedy(text, (*first.objects, *other.objects), other.pods)
    yield from _reduced(ledger, objects, pools, node, claims)


def devices_to_add(ledger: DeviceLedger, row: int, claims: PodDeviceClaims) -> str:
    """Return the free devices that a node needs for the requests that its devices do not serve."""
    pools, wanted = ledger.pools(row, claims.avoids), list[str]()
    for claim, option in _options(claims):
        if option.takes_all or len(_free(ledger, pools, option)) >= option.count:
            continue
        devices = "device" if option.count == 1 else "devices"
        wanted.append(
            f"{option.count} free {devices} that request {option.name} of claim {claim.key} selects"
        )
    return " and ".join(wanted)


def _options(claims: PodDeviceClaims) -> Iterator[tuple[PendingClaim, RequestOption]]:
    """Yield the first option of each request of the pending claims."""
    for claim in claims.pending:
        for request in claim.requests:
            yield claim, request.options[0]


def _devices(pools: Sequence[Pool]) -> Iterator[InventoryDevice]:
    return (device for pool in pools for device in pool.devices)


def _free(
    ledger: DeviceLedger, pools: Sequence[Pool], option: RequestOption
) -> list[InventoryDevice]:
    return [
        device for pool in pools for device in pool.devices if is_free(ledger, pool, option, device)
    ]


def _released(
    ledger: DeviceLedger,
    objects: ObjectTable,
    pools: Sequence[Pool],
    node: str,
    claims: PodDeviceClaims,
) -> Iterator[ObjectRemedy]:
    """Yield the end of the pods that use selected devices: of one claim, then of more together."""
    keys = dict.fromkeys(
        holder
        for _, option in _options(claims)
        for device in _devices(pools)
        if is_selected(option, device)
        for holder in ledger.holders(device.id)
    )
    claims_there = (objects.get(ResourceClaim, key) for key in keys)
    # The devices of a claim of a whole PodGroup are not released with single pods.
    owners = [
        claim
        for claim in claims_there
        if claim is not None and all(user.resource == PODS for user in claim.status.reserved_for)
    ]
    for some in _combinations(owners):
        users = sorted(
            {
                f"{claim.metadata.namespace}/{user.name}"
                for claim in some
                for user in claim.status.reserved_for
            }
        )
        names = listed([claim.key for claim in some], NAMED)
        claim_words = "claims" if len(some) > 1 else "claim"
        if users:
            ended = f"{listed(users, NAMED)} {'have' if len(users) > 1 else 'has'} ended"
            text = f"{node} takes it when {ended} and {claim_words} {names} released the devices"
        else:
            text = f"delete {claim_words} {names}, which no pod uses: {node} takes it then"
        yield ObjectRemedy(text, tuple(_deallocated(claim) for claim in some), tuple(users))


def _combinations(claims: Sequence[ResourceClaim]) -> Iterator[Sequence[ResourceClaim]]:
    """Yield single claims, then ever more together, and all of them; few of many claims."""
    yield from ([one] for one in claims[:SINGLY])
    count = 2
    while count < len(claims):
        yield claims[:count]
        count += 1 if count < SINGLY else count
    if len(claims) > 1:
        yield claims


def _deallocated(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim as its controller leaves it after its last pod."""
    status = replace(claim.status, allocation=None, reserved_for=(), devices=())
    return replace(claim, status=status)


def _untainted(
    objects: ObjectTable, pools: Sequence[Pool], claims: PodDeviceClaims
) -> Iterator[ObjectRemedy]:
    """Yield the removal of taints that requests do not tolerate from the selected devices."""
    tainted = {
        device.id: (claim.key, device)
        for claim, option in _options(claims)
        for device in _devices(pools)
        if is_selected(option, device) and not is_tolerated(option, device)
    }
    if not tainted:
        return
    slices = []
    for item in objects.all(ResourceSlice):
        spec = item.spec
        devices = tuple(
            replace(device, taints=tuple(t for t in device.taints if t.effect not in FORBIDDING))
            if (spec.driver, spec.pool.name, device.name) in tainted
            else device
            for device in spec.devices
        )
        if devices != spec.devices:
            slices.append(replace(item, spec=replace(spec, devices=devices)))
    names = " and ".join("/".join(name[1:]) for name in tainted)
    taints = dict.fromkeys(
        f"{taint.key}:{taint.effect}"
        for _, device in tainted.values()
        for taint in device.spec.taints
        if taint.effect in FORBIDDING
    )
    keys = " and ".join(dict.fromkeys(key for key, _ in tainted.values()))
    word = "devices" if len(tainted) > 1 else "device"
    them = "them" if len(taints) > 1 else "it"
    text = f"remove {' and '.join(taints)} from {word} {names}, or let claim {keys} tolerate {them}"
    yield ObjectRemedy(text, tuple(slices))


def _reduced(
    ledger: DeviceLedger,
    objects: ObjectTable,
    pools: Sequence[Pool],
    node: str,
    claims: PodDeviceClaims,
) -> Iterator[ObjectRemedy]:
    """Yield claims that request as many devices as the node has free."""
    for claim, option in _options(claims):
        free = len(_free(ledger, pools, option))
        old = objects.get(ResourceClaim, claim.key)
        if option.takes_all or not 0 < free < option.count or old is None:
            continue
        requests = tuple(
            replace(request, exactly=replace(request.exactly, count=free))
            if request.name == option.name and request.exactly is not None
            else request
            for request in old.spec.devices.requests
        )
        if requests == old.spec.devices.requests:
            continue
        devices = replace(old.spec.devices, requests=requests)
        yield ObjectRemedy(
            f"recreate claim {claim.key} with a count of {free} in request {option.name}: "
            f"{node} has that free",
            (replace(old, spec=replace(old.spec, devices=devices)),),
        )
