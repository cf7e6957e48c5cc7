"""Kubeconfig files as typed entries, several files merged as kubectl does.

Of entries with one name the first counts, and so does the first ``current-context``.
Source: k8s.io/client-go tools/clientcmd/api/v1/types.go (fields), loader.go ``Load`` (merging).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from koordinator.api.codec import decode
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.yaml_documents import yaml_document


class ClusterEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A server and how to know it.  Data are base64 of PEM and win over files."""

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
    """How to prove who we are, and as whom to act (``as``).  A token file wins over a token."""

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
    """Where an entry stands: ``path`` names it inside the file."""

    file: Path
    path: str

    def error(self, problem: str, field_name: str = "") -> InputError:
        """Return the error about a field of this entry."""
        path = f"{self.path}.{field_name}" if field_name else self.path
        return InputError(problem, source=str(self.file), path=path)


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The merged entries, each with the place where it was found."""

    clusters: dict[str, tuple[ClusterEntry, EntryLocation]]
    users: dict[str, tuple[UserEntry, EntryLocation]]
    contexts: dict[str, tuple[ContextEntry, EntryLocation]]
    current_context: str


def read_kubeconfig(files: Sequence[Path]) -> Kubeconfig:
    """Return what the files say together.  Raises InputError with file and field."""
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
