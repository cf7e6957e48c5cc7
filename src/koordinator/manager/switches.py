"""Controllers and node resource plugins that flags of the manager enable."""

from enum import StrEnum


class Controller(StrEnum):
    """Controller names of the flag ``--controllers``."""

    NODE_METRIC = "nodemetric"
    NODE_RESOURCE = "noderesource"
    NODE_SLO = "nodeslo"
    QUOTA_PROFILE = "quotaprofile"
    COLOCATION_PROFILE = "colocationprofile"
    QUEUE_UNITS = "queueunits"


class NodePlugin(StrEnum):
    """Plugin names of the flag ``--noderesource-plugins``."""

    MID = "MidResource"
    BATCH = "BatchResource"
    NORMALIZATION = "CPUNormalization"
    AMPLIFICATION = "ResourceAmplification"
    GPU = "GPUDeviceResource"
    RDMA = "RDMADeviceResource"
