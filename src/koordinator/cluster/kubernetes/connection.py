"""Address of the API server and credentials, from kubeconfig files or the pod's service account.

Several kubeconfig files are merged as kubectl does: of entries with one name the first counts, and
so does the first ``current-context``.  Only paths of credential files are returned: the files are
rotated, so they are read on use.

Source: k8s.io/client-go tools/clientcmd/client_config.go, validation.go; rest/config.go
``InClusterConfig``; tools/clientcmd/api/v1/types.go (fields), loader.go ``Load`` (merging).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import field

from koordinator.api.codec import decode
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import yaml_document

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Headers = tuple[tuple[str, str], ...]
Pem = bytes | Path | None  # the text itself, or the file that has it


class ClusterEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A server and its certificate authority.  Data (PEM in base64) take precedence over files."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    proxy_url: str = ""
    extensions: tuple[dict[str, Any], ...] = ()


class ExecVariable(msgspec.Struct, frozen=True):
    """An environment variable of a credential plugin."""

    name: str
    value: str


class ExecEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command that prints credentials.  ``interactive_mode`` Always needs a terminal."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[ExecVariable, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class UserEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Credentials and impersonation (``as``).  A token file takes precedence over a token."""

    client_certificate: str = ""
    client_certificate_data: bytes = b""
    client_key: str = ""
    client_key_data: bytes = b""
    token: str = ""
    token_file: str = field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    acts_as: str = field(name="as", default="")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    exec: ExecEntry | None = None
    auth_provider: dict[str, Any] | None = None


class ContextEntry(msgspec.Struct, frozen=True):
    """Names of a cluster and a user, and the default namespace."""

    cluster: str
    user: str = ""
    namespace: str = ""


class NamedCluster(msgspec.Struct, frozen=True):
    """A cluster with the name that contexts use."""

    name: str
    cluster: ClusterEntry


class NamedUser(msgspec.Struct, frozen=True):
    """A user with the name that contexts use."""

    name: str
    user: UserEntry = UserEntry()


class NamedContext(msgspec.Struct, frozen=True):
    """A context with its name."""

    name: str
    context: ContextEntry


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    clusters: tuple[NamedCluster, ...] = ()
    users: tuple[NamedUser, ...] = ()
    contexts: tuple[NamedContext, ...] = ()
    current_context: str = ""


@dataclass(frozen=True, slots=True)
class EntryLocation:
    """Position of an entry; ``path`` is the one inside the file."""

    file: Path
    path: str

    def error(self, problem: str, field_name: str = "") -> InputError:
        """Return the error about a field of this entry."""
        path = f"{self.path}.{field_name}" if field_name else self.path
        return InputError(problem, source=str(self.file), path=path)


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The merged entries, each with its position."""

    clusters: dict[str, tuple[ClusterEntry, EntryLocation]]
    users: dict[str, tuple[UserEntry, EntryLocation]]
    contexts: dict[str, tuple[ContextEntry, EntryLocation]]
    current_context: str


def read_kubeconfig(files: Sequence[Path]) -> Kubeconfig:
    """Merge the files.  Raises InputError with file and field."""
    merged = Kubeconfig({}, {}, {}, "")
    current = ""
    for file in files:
        config = _read(file)
        for i, cluster in enumerate(config.clusters):
            place = EntryLocation(file, f"clusters[{i}].cluster")
            merged.clusters.setdefault(cluster.name, (cluster.cluster, place))
        for i, user in enumerate(config.users):
            merged.users.setdefault(user.name, (user.user, EntryLocation(file, f"users[{i}].user")))
        for i, context in enumerate(config.contexts):
            place = EntryLocation(file, f"contexts[{i}].context")
            merged.contexts.setdefault(context.name, (context.context, place))
        current = current or config.current_context
    return Kubeconfig(merged.clusters, merged.users, merged.contexts, current)


def _read(file: Path) -> _File:
    try:
        tree = yaml_document(read_file(file, LARGEST_CONFIGURATION_BYTES), str(file))
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}; must be a kubeconfig file", source=str(file)
        ) from None
    if not isinstance(tree, dict):
        raise InputError("must be a kubeconfig", source=str(file))
    try:
        return decode(tree, _File)
    except InputError as error:
        raise error.within(source=str(file)) from None


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
    """Credentials; ``headers`` are sent unchanged (impersonation)."""

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
    """Error of a start without a cluster in the flags or the environment."""


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
