"""ResourceManager addresses from Hadoop's configuration files.

The folder of ``HADOOP_CONF_DIR`` has ``core-default.xml``, ``core-site.xml``, ``yarn-default.xml``
and ``yarn-site.xml``; later files override earlier ones, and only the last is required.  Files of
further clusters have the cluster's id as a prefix, such as ``etl.yarn-site.xml``.
Source: yarn-copilot pkg/yarn/config, ``Configuration``; Hadoop YarnConfiguration.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

DEFAULT_CLUSTER: Final = "__default_yarn_cluster__"
_FILES: Final = ("core-default.xml", "core-site.xml", "yarn-default.xml", "yarn-site.xml")
_SITE: Final = "yarn-site.xml"
_RM: Final = "yarn.resourcemanager"
_AUTHENTICATION: Final = "hadoop.security.authentication"
_CLIENT_PORT, _ADMIN_PORT, _WEB_PORT, _TLS_PORT = 8032, 8033, 8088, 8090
_LARGEST_FILE: Final = 1 << 20
_PORTS: Final = 1 << 16

HostPort = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ResourceManagerAddresses:
    """Addresses of one ResourceManager; ``rm_id`` is empty without high availability."""

    rm_id: str
    client: HostPort
    admin: HostPort
    web: HostPort
    uses_tls: bool = False


@dataclass(frozen=True, slots=True)
class YarnClusterConfig:
    """One YARN cluster; with high availability it has several ResourceManagers."""

    cluster_id: str
    resource_managers: tuple[ResourceManagerAddresses, ...]


def read_clusters(folder: Path) -> tuple[YarnClusterConfig, ...]:
    """Return the clusters of a folder, the default one first.

    Raises InputError for a missing or malformed file, an address that can't be one, and for
    Kerberos, which is not supported.
    """
    if not (folder / _SITE).is_file():
        raise InputError(
            f"{_SITE} is missing; must be a folder such as HADOOP_CONF_DIR names",
            source=str(folder),
        )
    clusters = [_cluster(folder, DEFAULT_CLUSTER, "")]
    for path in sorted(folder.glob(f"?*.{_SITE}")):
        cluster_id = path.name.removesuffix(f".{_SITE}")
        clusters.append(_cluster(folder, cluster_id, f"{cluster_id}."))
    return tuple(clusters)


def read_properties(path: Path) -> dict[str, str]:
    """Return the properties of a Hadoop configuration file.  Raises InputError."""
    source = str(path)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"larger than {_LARGEST_FILE} bytes", source=source)
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=source) from None
    try:
        _refuse_entities(text, source)
        root = ET.fromstring(text)  # noqa: S314 -- entities are refused above
    except (ET.ParseError, ExpatError) as error:
        raise InputError(f"is not XML: {error}", source=source) from None
    properties = {}
    for each in root.iter("property"):
        name, value = each.findtext("name", "").strip(), each.findtext("value", "").strip()
        if name:
            properties[name] = value
    return properties


def _refuse_entities(text: bytes, source: str) -> None:
    """Raise InputError for a text that declares an entity, in any encoding."""

    def refuse(*_: object) -> None:
        raise InputError("must not declare entities", source=source)

    parser = ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.Parse(text, True)


def _cluster(folder: Path, cluster_id: str, prefix: str) -> YarnClusterConfig:
    properties: dict[str, str] = {}
    for name in _FILES:
        path = folder / f"{prefix}{name}"
        if path.is_file():
            properties |= read_properties(path)
    source = str(folder / f"{prefix}{_SITE}")
    authentication = properties.get(_AUTHENTICATION, "simple").lower()
    if authentication != "simple":
        raise InputError(
            f"must be simple, got {authentication!r}: Kerberos is not supported, as in the "
            "original; the ResourceManager must accept this process without it",
            source=source,
            path=_AUTHENTICATION,
        )
    ids = [""]
    if properties.get(f"{_RM}.ha.enabled", "false").lower() == "true":
        ids = [part.strip() for part in properties.get(f"{_RM}.ha.rm-ids", "").split(",")]
        ids = [part for part in ids if part]
        if not ids:
            problem = f"is required, where {_RM}.ha.enabled is true"
            raise InputError(problem, source=source, path=f"{_RM}.ha.rm-ids")
    return YarnClusterConfig(
        cluster_id, tuple(_addresses(properties, rm_id, source) for rm_id in ids)
    )


def _addresses(properties: Mapping[str, str], rm_id: str, source: str) -> ResourceManagerAddresses:
    uses_tls = properties.get("yarn.http.policy", "").upper() == "HTTPS_ONLY"
    web, web_port = (
        (f"{_RM}.webapp.https.address", _TLS_PORT)
        if uses_tls
        else (f"{_RM}.webapp.address", _WEB_PORT)
    )
    host = _of(properties, f"{_RM}.hostname", rm_id)
    client = _address(properties, f"{_RM}.address", rm_id, (host, _CLIENT_PORT), source)
    host = host or client[0]
    return ResourceManagerAddresses(
        rm_id,
        client,
        _address(properties, f"{_RM}.admin.address", rm_id, (host, _ADMIN_PORT), source),
        _address(properties, web, rm_id, (host, web_port), source),
        uses_tls,
    )


def _address(
    properties: Mapping[str, str], name: str, rm_id: str, default: HostPort, source: str
) -> HostPort:
    path = f"{name}.{rm_id}" if rm_id else name
    text = _of(properties, name, rm_id)
    text = text.replace(f"${{{_RM}.hostname}}", default[0]) if default[0] else text
    if not text:
        if not default[0]:
            raise InputError("is required", source=source, path=path)
        return default
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(default[1]))
    if not host or "${" in text or not port.isdecimal() or not 0 < int(port) < _PORTS:
        problem = f"must be an address such as rm.example:8032, without variables, got {text!r}"
        raise InputError(problem, source=source, path=path)
    return host.strip("[]"), int(port)


def _of(properties: Mapping[str, str], name: str, rm_id: str) -> str:
    if rm_id:
        return properties.get(f"{name}.{rm_id}") or ""
    return properties.get(name, "")
