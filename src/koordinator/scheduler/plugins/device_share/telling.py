"""What people are told of a node whose devices don't do."""

from collections.abc import Iterator

import numpy as np

from koordinator.domain.devices.claim import DeviceClaim, Want
from koordinator.scheduler.snapshot import Snapshot


def shortage_in_words(view: Snapshot, claim: DeviceClaim) -> str:
    """Return of each type of which the only row of the view has too few devices, what there is."""
    return "; ".join(filter(None, (_short(view, want) for want in claim.wants)))


def _short(view: Snapshot, want: Want) -> str:
    """Count devices that are left; partitions, NUMA nodes and the like are not looked at."""
    row, kind = int(view.row_numbers[0]), want.kind
    report = view.devices.reports.get(row)
    group = report.model.group(kind) if report is not None else None
    asked = f"{kind}: asks for {want.request.count}"
    if report is None or group is None:
        return f"{asked}, none is reported"
    columns, healthy = view.devices.columns[kind], report.healthy.get(kind, 0)
    left = np.maximum(columns.left[row], 0)
    reported = [device.minor for device in group.devices]
    broken = [minor for minor in reported if not healthy >> minor & 1]
    enough = [minor for minor in reported if (left[minor] >= np.array(want.request.amounts)).all()]
    if len(enough) >= want.request.count and not broken:
        return ""
    said = [f"{len(enough)} of {len(reported)} have so much left", *_broken(broken)]
    return f"{asked}, {', '.join(said)}"


def _broken(minors: list[int]) -> Iterator[str]:
    if minors:
        named = ", ".join(map(str, minors))
        yield f"{len(minors)} {'is' if len(minors) == 1 else 'are'} not healthy (minor {named})"
