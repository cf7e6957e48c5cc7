"""Accelerator descriptions in the format of device daemons.

Source: koordinator pkg/koordlet/util/device.go, ``XPUDeviceInfo``.
"""

import msgspec


class P2pLink(msgspec.Struct, frozen=True, rename="camel"):
    """``peer_minor`` is a comma-separated list of minors; ``type`` is NVLink, HCCS and so on."""

    peer_minor: str = ""
    type: str = ""


class XpuTopology(msgspec.Struct, frozen=True, rename="camel"):
    """Location and links of an accelerator.  Ids are texts; empty means unknown."""

    p2p_links: tuple[P2pLink, ...] = msgspec.field(name="p2pLinks", default=())
    must_honor_partition: bool = False
    socket_id: str = msgspec.field(name="socketID", default="-1")
    node_id: str = msgspec.field(name="nodeID", default="")
    pcie_id: str = msgspec.field(name="pcieID", default="")
    bus_id: str = msgspec.field(name="busID", default="")


class XpuStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Health of an accelerator; ``err_code`` is machine-readable."""

    healthy: bool = True
    err_code: str = ""
    err_message: str = ""


class Xpu(msgspec.Struct, frozen=True, rename="camel"):
    """One accelerator of any vendor.  ``resources`` are quantities by name."""

    vendor: str
    model: str
    uuid: str
    minor: str
    resources: dict[str, str] = {}
    topology: XpuTopology | None = None
    status: XpuStatus | None = None
