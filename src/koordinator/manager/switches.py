"""What flags of the manager switch off: controllers, and parts of the one of node resources."""

from enum import StrEnum


class Controller(StrEnum):
    """The flag ``--controllers``."""

    NODE_METRIC = "nodemetric"
    NODE_RESOURCE = "noderesource"
    NODE_SLO = "nodeslo"
    QUOTA_PROFILE = "quotaprofile"
    COLOCATION_PROFILE = "colocationprofile"
    QUEUE_UNITS = "queueunits"


class NodePlugin(StrEnum):
    """The flag ``--noderesource-plugins``."""

    MID = "MidResource"
    BATCH = "BatchResource"
    NORMALIZATION = "CPUNormalization"
    AMPLIFICATION = "ResourceAmplification"
    GPU = "GPUDeviceResource"
    RDMA = "RDMADeviceResource"
