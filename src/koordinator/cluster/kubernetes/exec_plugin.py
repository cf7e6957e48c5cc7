"""Credential plugins: a command of the kubeconfig that prints a token or a client certificate.

Source: k8s.io/client-go plugin/pkg/client/auth/exec/exec.go; pkg/apis/clientauthentication/v1.
"""

import datetime as dt
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from koordinator.api.meta import JsonObject
from koordinator.cluster.kubernetes.connection import ExecPlugin
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError

_TIMEOUT_S = 60.0
_SHOWN = 500  # characters of the output of a failed plugin
_CONFIG = "client.authentication.k8s.io/exec"  # the extension of a cluster that plugins may read
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class PluginCredentials(msgspec.Struct, frozen=True, rename="camel"):
    """What a plugin answers; certificate and key are PEM."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: dt.datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    status: PluginCredentials


def run_plugin(plugin: ExecPlugin, environ: Mapping[str, str]) -> PluginCredentials:
    """Run the command and return what it printed; takes as long as the plugin does.

    Raises InputError if it can't be run at all, ClusterError if it fails this time.
    """
    entry, place = plugin.entry, plugin.place
    if entry.api_version not in _VERSIONS:
        raise place.error(
            f"must be {' or '.join(_VERSIONS)}, got {entry.api_version!r}", "exec.apiVersion"
        )
    command = entry.command
    if "/" in command:  # relative to the kubeconfig; a bare name is looked up in PATH
        command = str(place.file.absolute().parent / command)
    variables = {variable.name: variable.value for variable in entry.env}
    try:
        done = subprocess.run(  # noqa: S603 -- the user's kubeconfig names it
            [command, *entry.args],
            env={**environ, **variables, "KUBERNETES_EXEC_INFO": _question(plugin)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        hint = f"; {entry.install_hint.strip()}" if entry.install_hint else ""
        raise place.error(
            f"can't run {command!r}: {error.strerror}{hint}", "exec.command"
        ) from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"credential plugin {command}: no answer in {_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        details = done.stderr.decode(errors="replace").strip()[-_SHOWN:]
        raise ClusterError(f"credential plugin {command}: exit status {done.returncode}: {details}")
    return _checked(plugin, command, done.stdout)


def _checked(plugin: ExecPlugin, command: str, output: bytes) -> PluginCredentials:
    try:
        answer = decode_json(output, _Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # the output itself is a secret
        raise ClusterError(
            f"credential plugin {command}: its output is no ExecCredential: {error}"
        ) from None
    if answer.api_version != plugin.entry.api_version:
        raise InputError(
            f"must be {answer.api_version!r}, the version of the plugin, "
            f"got {plugin.entry.api_version!r}",
            source=str(plugin.place.file),
            path=f"{plugin.place.path}.exec.apiVersion",
        )
    status = answer.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ClusterError(
            f"credential plugin {command}: neither a token nor a certificate with its key"
        )
    return status


def _question(plugin: ExecPlugin) -> str:
    spec: JsonObject = {"interactive": False}
    if plugin.entry.provide_cluster_info:
        spec["cluster"] = _cluster_info(plugin)
    question = {
        "apiVersion": plugin.entry.api_version,
        "kind": "ExecCredential",
        "spec": spec,
    }
    return msgspec.json.encode(question).decode()


def _cluster_info(plugin: ExecPlugin) -> JsonObject:
    cluster = plugin.cluster
    ca = cluster.certificate_authority_data
    if not ca and cluster.certificate_authority:
        ca = _content(plugin.place.file.parent / cluster.certificate_authority)
    info: dict[str, Any] = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": ca,
        "proxy-url": cluster.proxy_url,
    }
    for extension in cluster.extensions:
        if extension.get("name") == _CONFIG:
            info["config"] = extension.get("extension")
    return {key: value for key, value in info.items() if value}


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", source=str(file)) from None
