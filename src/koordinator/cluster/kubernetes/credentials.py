"""Credentials for the API server, also from exec plugins.

Files (service account tokens, client certificates, authorities) are read again every minute, since
they are rotated; a credential plugin runs again when its credentials have expired or are rejected.

Source: k8s.io/client-go plugin/pkg/client/auth/exec/exec.go; pkg/apis/clientauthentication/v1;
k8s.io/client-go transport/{token_source,cert_rotation}.go.
"""

import base64
import datetime as dt
import logging
import os
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from koordinator.api.meta import JsonObject
from koordinator.cluster.kubernetes.connection import Connection, ExecPlugin, Headers, Pem
from koordinator.foundation.clock import Clock, to_epoch_s
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.lazy_dataclass import dataclass

_TIMEOUT_S = 60.0
_SHOWN = 500  # characters of the output of a failed plugin
_CONFIG = "client.authentication.k8s.io/exec"  # the extension of a cluster that plugins may read
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

_REREAD_S = 60.0
_LEAST_S = 5.0  # between two renewals: a plugin isn't run for every refused request

log = logging.getLogger(__name__)


class PluginCredentials(msgspec.Struct, frozen=True, rename="camel"):
    """Output of a credential plugin; certificate and key are PEM."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: dt.datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    status: PluginCredentials


def run_plugin(plugin: ExecPlugin, environ: Mapping[str, str]) -> PluginCredentials:
    """Run the command and return its output; takes as long as the plugin does.

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
            f"cannot run {command!r}: {error.strerror}{hint}", "exec.command"
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
        ca = _plugin_content(plugin.place.file.parent / cluster.certificate_authority)
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


def _plugin_content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(file)) from None


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """Headers and TLS of a request; ``tls`` None for a server that speaks plain HTTP."""

    headers: Headers
    tls: ssl.SSLContext | None


class Credentials:
    """Current credentials; thread-safe."""

    def __init__(
        self, connection: Connection, clock: Clock, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Read them for the first time.

        Raises InputError for files and plugins that can't be used, ClusterError for a plugin that
        fails.
        """
        self.connection = connection
        self._clock = clock
        self._environ = environ
        self._lock = threading.Lock()
        self._tls: tuple[tuple[bytes | None, ...], ssl.SSLContext] | None = None
        self._renewed_s = clock.now_s()
        self._renew_s = float("inf")
        self._access = Access((), None)
        self._access = self._read()

    def current(self) -> Access | None:
        """Return the access; None if it has to be renewed first."""
        return self._access if self._clock.now_s() < self._renew_s else None

    def renewed(self, refused: Access | None = None) -> Access:
        """Return an access that is not older than now needs; reads files or runs the plugin.

        ``refused`` is one that the server didn't accept: if there is nothing newer, and it is not
        a moment old, it is renewed before its time.  Raises ClusterError.
        """
        with self._lock:
            now_s = self._clock.now_s()
            early = refused is self._access and now_s >= self._renewed_s + _LEAST_S
            if now_s < self._renew_s and not early:
                return self._access
            self._renewed_s = now_s
            try:
                self._access = self._read()
            except (InputError, ClusterError) as error:
                self._renew_s = now_s + _LEAST_S
                if self.connection.identity.plugin is not None:
                    raise ClusterError(f"credentials cannot be renewed: {error}") from error
                # The file may be in rotation; the old credentials are valid for a while.
                log.warning("credentials kept: a file cannot be read", extra={"error": str(error)})
            return self._access

    def _read(self) -> Access:
        identity = self.connection.identity
        given = PluginCredentials()
        if identity.plugin is not None:
            given = run_plugin(identity.plugin, self._environ)
        headers = list(identity.headers)
        token = given.token or _text(identity.token_file) or identity.token
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        elif identity.basic is not None:
            login = base64.b64encode(":".join(identity.basic).encode()).decode()
            headers.append(("Authorization", f"Basic {login}"))
        access = Access(tuple(headers), self._read_tls(given))
        self._renew_s = self._end_of(given)
        if (access.headers, access.tls) == (self._access.headers, self._access.tls):
            return self._access  # a refused one is not worth a second try
        return access

    def _end_of(self, given: PluginCredentials) -> float:
        server, identity = self.connection.server, self.connection.identity
        end_s = float("inf")
        if given.expiration_timestamp is not None:
            end_s = max(to_epoch_s(given.expiration_timestamp), self._renewed_s + _LEAST_S)
        files = (server.ca, identity.certificate, identity.key, identity.token_file)
        if identity.plugin is None and any(isinstance(file, Path) for file in files):
            end_s = self._renewed_s + _REREAD_S
        return end_s

    def _read_tls(self, given: PluginCredentials) -> ssl.SSLContext | None:
        server, identity = self.connection.server, self.connection.identity
        if not server.url.startswith("https"):
            return None
        parts = (
            _content(server.ca),
            given.client_certificate_data.encode() or _content(identity.certificate),
            given.client_key_data.encode() or _content(identity.key),
        )
        if self._tls is not None and self._tls[0] == parts:
            return self._tls[1]
        try:
            context = _context(*parts, verified=server.verified)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise InputError(
                f"certificate, key or certificate authority: {error}; must be PEM",
                source=self.connection.source,
            ) from None
        self._tls = parts, context
        return context


def _context(
    ca: bytes | None, certificate: bytes | None, key: bytes | None, *, verified: bool
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
    # Python 3.13 began to require extensions that many cluster authorities don't have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate and key:
        with tempfile.NamedTemporaryFile() as file:  # ssl reads keys from files only
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(pem: Pem) -> bytes | None:
    if not isinstance(pem, Path):
        return pem
    try:
        return pem.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(pem)) from None


def _text(file: Path | None) -> str:
    content = _content(file)
    return content.decode().strip() if content else ""
