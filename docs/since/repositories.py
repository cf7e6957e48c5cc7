"""Releases of Koordinator, Kubernetes and the descheduler, with their files."""

import io
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import yaml
from docs.since.golang import GoSources

_VERSION: Final = re.compile(r"(?:v|kubernetes-)(\d+)\.(\d+)\.(\d+)")
_CRDS: Final = "config/crd/bases"
_OF_KOORDINATOR: Final = ("apis", "cmd", "pkg", _CRDS)
_OF_DESCHEDULER: Final = ("cmd", "metrics", "pkg")
#: Modules of Kubernetes with the folders that are read.
_MODULES: Final[Mapping[str, Sequence[str]]] = {
    "kubernetes": ("pkg/scheduler", "cmd/kube-scheduler"),
    "client-go": ("tools/leaderelection",),
    "dynamic-resource-allocation": ("resourceclaim",),
    "kube-scheduler": ("config",),
    "component-base": (
        "cli",
        "compatibility",
        "config",
        "featuregate",
        "logs",
        "metrics",
        "version",
    ),
    "apiserver": ("pkg/server/options",),
    "api": ("core/v1",),
}
#: Those whose repositories are small, with tags such as kubernetes-1.30.0.
STAGED: Final = ("api", "apiserver", "component-base", "kube-scheduler")
_Files = Mapping[str, str]


@dataclass(frozen=True)
class Release:
    """One release of a project; its files are read when they are needed."""

    project: str
    version: str
    read: Callable[[], _Files]

    def __str__(self) -> str:
        return f"{self.project} {self.version}"

    @cached_property
    def sources(self) -> GoSources:
        """Return the Go sources."""
        return GoSources({path: text for path, text in self._files.items() if _is_go(path)})

    @cached_property
    def schemas(self) -> Mapping[str, Any]:
        """Return the schema of every kind that has a CRD."""
        crds = [
            yaml.load(text, yaml.CSafeLoader)["spec"]
            for path, text in self._files.items()
            if path.startswith(_CRDS)
        ]
        return {
            crd["names"]["kind"]: crd["versions"][-1]["schema"]["openAPIV3Schema"] for crd in crds
        }

    def has(self, folder: str) -> bool:
        """Return whether a folder has files; the empty one is the whole release."""
        return any(not folder or path.startswith(f"{folder}/") for path in self._files)

    @cached_property
    def _files(self) -> _Files:
        return self.read()


def read_histories(upstream: Path, modules: Path) -> Sequence[Sequence[Release]]:
    """Return histories of releases, each with the oldest first.

    ``upstream`` has clones by the names of the repositories; ``modules`` is the folder ``k8s.io``
    in the cache of Go's modules, whose releases are fewer.
    """
    koordinator, descheduler = upstream / "koordinator", upstream / "descheduler"
    return (
        [
            Release("Kubernetes", _plain(tag), partial(_staged_files, upstream, tag))
            for tag in _tags(upstream / "api", "kubernetes-1.*.0")
        ],
        [
            Release(
                "Kubernetes",
                _plain(version).rpartition(".")[0],
                partial(_module_files, modules, version),
            )
            for version in _versions(path.name for path in modules.glob("kubernetes@v*"))
        ],
        [
            *(
                Release(
                    "Koordinator",
                    _plain(tag),
                    partial(_tagged_files, koordinator, tag, _OF_KOORDINATOR),
                )
                for tag in _tags(koordinator, "v*")
            ),
            Release(
                "Koordinator",
                "main",
                partial(_tagged_files, koordinator, "HEAD", _OF_KOORDINATOR),
            ),
        ],
        [
            Release(
                "descheduler",
                _plain(tag),
                partial(_tagged_files, descheduler, tag, _OF_DESCHEDULER),
            )
            for tag in _tags(descheduler, "v*")
        ],
    )


def _plain(tag: str) -> str:
    return tag.removeprefix("kubernetes-").removeprefix("v").removesuffix(".0")


def _tags(repository: Path, pattern: str) -> Sequence[str]:
    listed = _git(repository, "tag", "--list", pattern).decode().split()
    return _versions(tag for tag in listed if _VERSION.fullmatch(tag))


def _versions(names: Iterable[str]) -> Sequence[str]:
    """Return the versions in some names, in order."""
    found = {tuple(map(int, it.groups())): it[0] for name in names if (it := _VERSION.search(name))}
    return [found[key] for key in sorted(found)]


def _tagged_files(repository: Path, tag: str, folders: Sequence[str]) -> _Files:
    present = _git(repository, "ls-tree", "--name-only", tag, *folders).decode().split()
    if not present:
        return {}
    packed = io.BytesIO(_git(repository, "archive", tag, "--", *present))
    with tarfile.open(fileobj=packed) as archive:
        return {
            member.name: content.read().decode()
            for member in archive
            if _is_read(member.name) and (content := archive.extractfile(member)) is not None
        }


def _staged_files(folder: Path, tag: str) -> _Files:
    return {
        f"{repository}/{path}": text
        for repository in STAGED
        if _git(folder / repository, "tag", "--list", tag)
        for path, text in _tagged_files(folder / repository, tag, _MODULES[repository]).items()
    }


def _module_files(folder: Path, version: str) -> _Files:
    return dict(_files_of_modules(folder, version))


def _files_of_modules(folder: Path, version: str) -> Iterator[tuple[str, str]]:
    for module, folders in _MODULES.items():
        number = version if module == "kubernetes" else version.replace("v1.", "v0.", 1)
        home = folder / f"{module}@{number}"
        for path in sorted(path for each in folders for path in (home / each).rglob("*.go")):
            if _is_read(path.name):
                yield f"{module}/{path.relative_to(home).as_posix()}", path.read_text("utf-8")


def _is_read(path: str) -> bool:
    return _is_go(path) or (path.startswith(_CRDS) and path.endswith(".yaml"))


def _is_go(path: str) -> bool:
    is_generated = path.rpartition("/")[2].startswith("zz_generated")
    return path.endswith(".go") and not path.endswith("_test.go") and not is_generated


def _git(repository: Path, *arguments: str) -> bytes:
    command = ("git", "-C", str(repository), *arguments)
    return subprocess.run(command, check=True, capture_output=True).stdout
