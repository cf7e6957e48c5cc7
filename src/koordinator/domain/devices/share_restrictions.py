"""Nodes on which GPUs can't be shared, or not in the way that the pod wants.

Source: koordinator pkg/scheduler/plugins/deviceshare/plugin.go, ``Filter``.
"""

from collections.abc import Collection, Mapping

from koordinator.api.labels import GPU_MODEL, GPU_VENDOR, gpu_isolation_provider
from koordinator.domain.devices.claim import DeviceClaim
from koordinator.domain.devices.shortage import DeviceShortage


def sharing_shortage(
    claim: DeviceClaim,
    pod_labels: Mapping[str, str],
    node_labels: Mapping[str, str],
    unsupported: Collection[tuple[str, str]],
) -> DeviceShortage | None:
    """Return why the node's GPUs can't be shared as the pod wants; None if they can.

    ``unsupported`` are (vendor, model) pairs whose GPUs are given out whole only.
    """
    if claim.gpu is None or not claim.gpu.is_share:
        return None
    wanted = gpu_isolation_provider(pod_labels)
    if wanted and wanted != gpu_isolation_provider(node_labels):
        # An error in the original, which as little as this is helped by removing pods.
        return DeviceShortage(
            "GPUIsolationProviderHAMICore not found on the node", resolvable=False
        )
    vendor, model = node_labels.get(GPU_VENDOR, ""), node_labels.get(GPU_MODEL, "")
    if (vendor, model) in unsupported:
        reason = f'model "{model}" of vendor "{vendor}" does not support GPU Share'
        return DeviceShortage(reason, resolvable=False)
    return None
