"""To which server, as whom: from a kubeconfig or from the pod that we run in.

Files named here are not read yet: they may change while we run.
Source: k8s.io/client-go tools/clientcmd/client_config.go, validation.go; rest/config.go
``InClusterConfig``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from koordinator.cluster.kubernetes.kubeconfig import (
    ClusterEntry,
    EntryLocation,
    ExecEntry,
    Kubeconfig,
    UserEntry,
    read_kubeconfig,
)
from koordinator.foundation.errors import InputError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Headers = tuple[tuple[str, str], ...]
Pem = bytes | Path | None  # the text itself, or the file that has it


@dataclass(frozen=True, slots=True)
class ApiServer:
    """An API server.  ``url`` has no slash at its end; ``ca`` None trusts what the system trusts.

    ``proxy_url`` empty leaves the choice to the environment.
    """

    url: str
    ca: Pem = None
    verified: bool = True
    tls_server_name: str = ""
    proxy_url: str = ""


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """Credential plugin: a command that prints credentials, and the cluster passed to it."""

    entry: ExecEntry
    place: EntryLocation
    cluster: ClusterEntry


@dataclass(frozen=True, slots=True)
class Identity:
    """How to prove who we are; ``headers`` are sent as they are (impersonation)."""

    certificate: Pem = None
    key: Pem = None
    token: str = ""
    token_file: Path | None = None
    basic: tuple[str, str] | None = None  # user name, password
    plugin: ExecPlugin | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Connection:
    """A server and an identity; ``source`` names their origin in messages.

    ``namespace`` is the default namespace; empty: ``default``.
    """

    server: ApiServer
    identity: Identity
    source: str
    namespace: str = ""


class NoClusterError(InputError):
    """Neither a flag nor the environment names a cluster."""


def find_connection(
    kubeconfig: str = "",
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Return the connection that flags, environment and files configure.

    ``kubeconfig`` if it is given; else the files of the variable KUBECONFIG; else
    ``~/.kube/config``; else the service account of the pod.  ``context``
    defaults to the current one.
    Raises InputError with file and field, or with all of these sources if none exists.
    """
    files = _files(kubeconfig, environ)
    if files:
        return _of_context(read_kubeconfig(files), context, files)
    if "KUBERNETES_SERVICE_HOST" in environ:
        return _of_pod(environ, service_account)
    raise NoClusterError(
        "no cluster is configured: set --kubeconfig FILE or the environment variable "
        "KUBECONFIG, create the file ~/.kube/config, or run in a pod of the cluster"
    )


def _files(kubeconfig: str, environ: Mapping[str, str]) -> list[Path]:
    if kubeconfig:
        return [Path(kubeconfig)]
    named = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if named:
        existing = [file for file in named if file.exists()]
        if not existing:
            raise InputError(
                "none of these files exists; must be a list of kubeconfig files",
                source=f"KUBECONFIG={environ['KUBECONFIG']}",
            )
        return existing
    usual = Path(environ.get("HOME", "/"), ".kube", "config")
    return [usual] if usual.exists() else []


def _of_pod(environ: Mapping[str, str], folder: Path) -> Connection:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    for file in (folder / "token", folder / "ca.crt"):
        if not file.exists():
            raise InputError(
                "missing in this pod; the pod must have a service account token "
                "(automountServiceAccountToken)",
                source=str(file),
            )
    host = f"[{host}]" if ":" in host else host
    return Connection(
        ApiServer(f"https://{host}:{port}", ca=folder / "ca.crt"),
        Identity(token_file=folder / "token"),
        source=f"service account of this pod ({folder})",
        namespace=_namespace_of_pod(folder),
    )


def _namespace_of_pod(folder: Path) -> str:
    file = folder / "namespace"
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def _of_context(config: Kubeconfig, context: str, files: list[Path]) -> Connection:
    source = os.pathsep.join(map(str, files))
    name = context or config.current_context
    if not config.contexts and not config.clusters:
        raise InputError("must be a kubeconfig file with clusters and contexts", source=source)
    if not name:
        raise InputError(
            f"is required: set it or --context to one of {_names(config.contexts)}",
            source=source,
            path="current-context",
        )
    if name not in config.contexts:
        raise InputError(
            f"must be one of {_names(config.contexts)}, got {name!r}",
            source=source,
            path="--context" if context else "current-context",
        )
    entry, place = config.contexts[name]
    if entry.cluster not in config.clusters:
        raise place.error(
            f"must be one of {_names(config.clusters)}, got {entry.cluster!r}", "cluster"
        )
    if entry.user and entry.user not in config.users:
        raise place.error(f"must be one of {_names(config.users)}, got {entry.user!r}", "user")
    cluster, cluster_place = config.clusters[entry.cluster]
    user, user_place = config.users.get(entry.user, (UserEntry(), place))
    return Connection(
        _server(cluster, cluster_place),
        _identity(user, user_place, cluster),
        source=f"{source} (context {name})",
        namespace=entry.namespace,
    )


def _server(entry: ClusterEntry, place: EntryLocation) -> ApiServer:
    if urlsplit(entry.server).scheme not in ("http", "https"):
        raise place.error(
            f"must be a URL such as https://10.0.0.1:6443, got {entry.server!r}", "server"
        )
    if entry.proxy_url and urlsplit(entry.proxy_url).scheme not in ("http", "https"):
        raise place.error(
            f"must be a URL with scheme http or https, got {entry.proxy_url!r}", "proxy-url"
        )
    ca = _pem(entry.certificate_authority_data, entry.certificate_authority, place)
    if ca is not None and entry.insecure_skip_tls_verify:
        raise place.error(
            "must not be true when a certificate authority is set",
            "insecure-skip-tls-verify",
        )
    return ApiServer(
        entry.server.rstrip("/"),
        ca,
        verified=not entry.insecure_skip_tls_verify,
        tls_server_name=entry.tls_server_name,
        proxy_url=entry.proxy_url,
    )


def _identity(entry: UserEntry, place: EntryLocation, cluster: ClusterEntry) -> Identity:
    if entry.auth_provider is not None:
        raise place.error(
            "must be a credential plugin (exec), a token or a client certificate, got "
            f"{entry.auth_provider.get('name')!r}",
            "auth-provider",
        )
    certificate = _pem(entry.client_certificate_data, entry.client_certificate, place)
    key = _pem(entry.client_key_data, entry.client_key, place)
    if (certificate is None) is not (key is None):
        raise place.error("must be set together", "client-certificate, client-key")
    plugin = None
    if entry.exec is not None:
        if entry.exec.interactive_mode == "Always":
            raise place.error(
                "must be Never or IfAvailable, got 'Always': there is no terminal",
                "exec.interactiveMode",
            )
        plugin = ExecPlugin(entry.exec, place, cluster)
    return Identity(
        certificate,
        key,
        token=entry.token,
        token_file=place.file.parent / entry.token_file if entry.token_file else None,
        basic=(entry.username, entry.password) if entry.username else None,
        plugin=plugin,
        headers=_impersonation(entry, place),
    )


def _impersonation(entry: UserEntry, place: EntryLocation) -> Headers:
    if not entry.acts_as:
        if entry.as_uid or entry.as_groups or entry.as_user_extra:
            raise place.error("required beside as-uid, as-groups and as-user-extra", "as")
        return ()
    headers = [("Impersonate-User", entry.acts_as)]
    if entry.as_uid:
        headers.append(("Impersonate-Uid", entry.as_uid))
    headers += [("Impersonate-Group", group) for group in entry.as_groups]
    for key, values in entry.as_user_extra.items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return tuple(headers)


def _pem(data: bytes, file: str, place: EntryLocation) -> Pem:
    if data:
        return data
    return place.file.parent / file if file else None


def _names(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "nothing: there is none"
