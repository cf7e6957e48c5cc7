"""Proxies from the environment, and the servers that NO_PROXY exempts.

Unlike in Python's standard library, NO_PROXY may contain CIDRs (10.0.0.0/8), as clusters use them.

Source: golang.org/x/net http/httpproxy/proxy.go.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server, None to connect directly."""
    server = urlsplit(url)
    variable = f"{server.scheme}_proxy"
    proxy = environ.get(variable.upper()) or environ.get(variable) or ""
    if not proxy:
        return None
    port = server.port or (443 if server.scheme == "https" else 80)
    if _is_exempt(server.hostname or "", port, environ):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_exempt(host: str, port: int, environ: Mapping[str, str]) -> bool:
    if host == "localhost" or _contains("127.0.0.0/8", host) or _contains("::1", host):
        return True
    rules = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    return any(_matches(rule.strip().lower(), host, port) for rule in rules.split(","))


def _matches(rule: str, host: str, port: int) -> bool:
    if rule == "*" or _contains(rule, host):
        return rule != ""
    name, colon, wanted_port = rule.rpartition(":")
    if colon and wanted_port.isdecimal():
        if int(wanted_port) != port:
            return False
        rule = name.strip("[]")
        if _contains(rule, host):
            return True
    if rule.startswith(("*.", ".")):
        return host.endswith(rule.removeprefix("*"))
    return rule != "" and (host == rule or host.endswith(f".{rule}"))


def _contains(network: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
