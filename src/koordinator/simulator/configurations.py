"""Named scheduler configurations: kube-scheduler's defaults and the one that the chart installs."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from msgspec.structs import replace

from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.simulator.embedded import STOCK

SHIPPED = "data/koordinator-scheduler.yaml"
PROFILE = "data/demo-profile.yaml"


@cache
def shipped_configuration() -> KubeSchedulerConfiguration:
    """Return the chart's configuration: profile ``koord-scheduler`` with Koordinator's plugins."""
    text = files("koordinator.simulator").joinpath(SHIPPED).read_bytes()
    return decode_configuration(yaml_document(text, SHIPPED), SHIPPED)


def default_configuration() -> KubeSchedulerConfiguration:
    """Return a configuration with kube-scheduler's default profile and the shipped one."""
    shipped = shipped_configuration()
    return replace(shipped, profiles=(*STOCK.profiles, *shipped.profiles))


def default_profile() -> KubeSchedulerConfiguration:
    """Return the configuration of ``koord demo``: ``data/demo-profile.yaml`` of this package."""
    text = files("koordinator.simulator").joinpath(PROFILE).read_bytes()
    return decode_configuration(yaml_document(text, PROFILE), PROFILE)


#: Names that ``--config`` accepts besides files.
BY_NAME: Mapping[str, Callable[[], KubeSchedulerConfiguration]] = MappingProxyType(
    {"koordinator": shipped_configuration, "kubernetes": lambda: STOCK}
)
