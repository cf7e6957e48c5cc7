"""The configuration file of the descheduler: ``descheduler/v1alpha2``.

``descheduler_configuration``  the file: intervals, limits, profiles
``plugin_args``                what arguments of plugins have in common, and how they are decoded
"""

from koordinator.descheduler.configuration.descheduler_configuration import (
    POINTS,
    SECURE_PORT,
    DeschedulerConfiguration,
    DeschedulerPlugin,
    DeschedulerPluginConfig,
    DeschedulerPlugins,
    DeschedulerPluginSet,
    DeschedulerProfile,
    decode_descheduler_configuration,
    parse_socket_address,
)
from koordinator.descheduler.configuration.plugin_args import (
    DESCHEDULER_API_VERSION,
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    decode_plugin_args,
    field_error,
)

__all__ = [
    "DESCHEDULER_API_VERSION",
    "POINTS",
    "SECURE_PORT",
    "DeschedulerConfiguration",
    "DeschedulerPlugin",
    "DeschedulerPluginArgs",
    "DeschedulerPluginConfig",
    "DeschedulerPluginSet",
    "DeschedulerPlugins",
    "DeschedulerProfile",
    "NamedPodSelector",
    "NamespaceLists",
    "check_namespaces",
    "check_pod_selectors",
    "check_selector",
    "decode_descheduler_configuration",
    "decode_plugin_args",
    "field_error",
    "parse_socket_address",
]
