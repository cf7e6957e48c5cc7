"""Definition of an experiment: the grid of its YAML file, and the runs of it.

``docs/how-to/run-an-experiment.md`` documents every field.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from koordinator.api.kubescheduler import ConfigStruct, decode_struct, did_you_mean
from koordinator.api.syntax import check_unique, numbered
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.simulator.api import OPENB, PROTOCOLS, TRACES
from koordinator.simulator.policies import BY_NAME, POLICIES
from koordinator.simulator.workload_file import read_workload

#: Part of the keys of runs; a new number makes the results of former versions unused.
_FORMAT: Final = 2
_KEY_DIGITS: Final = 20
_LONGEST_NAME: Final = 128  # bytes; a file name has at most 255


class ExperimentSource(ConfigStruct, frozen=True, kw_only=True):
    """Source of pods: a workload, or a trace in the folder ``data``; see ``load_source``."""

    name: str = ""  # default: of the file, or the format of the trace
    workload: str = ""
    trace: str = ""
    data: str = ""
    pods: str = ""
    protocol: str = ""
    topology: bool = False
    until: Duration | None = None

    @property
    def has_arrivals(self) -> bool:
        """Whether pods arrive one after another and never leave."""
        return self.protocol == "arrivals" or (self.trace == OPENB and not self.protocol)


class ExperimentPolicy(ConfigStruct, frozen=True, kw_only=True):
    """Scheduler of a run: a policy, a configuration, or both; see ``simulate``."""

    name: str = ""  # default: the policy or the configuration
    policy: str = ""
    config: str = ""
    plugins: tuple[str, ...] = ()


class ExperimentParameters(ConfigStruct, frozen=True, kw_only=True):
    """Values of the parameters that vary; one that is left out has its default in every run."""

    demand: tuple[float, ...] = ()
    migrate: tuple[float, ...] = ()
    colocation: tuple[bool, ...] = ()


class Experiment(ConfigStruct, frozen=True, kw_only=True):
    """Grid of runs: every source with every policy, seed and value of every parameter."""

    title: str = ""
    sources: tuple[ExperimentSource, ...] = ()
    policies: tuple[ExperimentPolicy, ...] = ()
    seeds: tuple[int, ...] = ()  # empty: the seed of each source
    parameters: ExperimentParameters = ExperimentParameters()
    bars: tuple[str, ...] = ()  # figures to draw as bars: a group per source and parameters


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """One run of the grid; paths of ``source`` and ``policy`` are absolute.

    ``key`` is a digest of the definition, including the content of all files that it names.
    """

    key: str
    source: ExperimentSource
    policy: ExperimentPolicy
    seed: int | None
    parameters: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the run in tables."""
        own = {"source": self.source.name, "policy": self.policy.name, "seed": self.seed}
        return own | dict(self.parameters)


def read_experiment(path: Path) -> Experiment:
    """Read a definition, with absolute paths.  Raises InputError with file, field and value."""
    source = str(path)
    try:
        text = read_file(path, LARGEST_CONFIGURATION_BYTES)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=source) from None
    experiment = decode_struct(yaml_document(text, source), Experiment, source)
    try:
        return _resolved(experiment, path)
    except InputError as error:
        raise error.within(source=source) from None


def planned_runs(experiment: Experiment) -> list[ExperimentRun]:
    """Return the runs of the grid in order: by source, parameters, policy, seed."""
    digests = _Digests()
    names = [name for name in experiment.parameters.__struct_fields__ if _values(experiment, name)]
    grids = list(product(*(_values(experiment, name) for name in names)))
    seeds: Sequence[int | None] = experiment.seeds or (None,)
    return [
        _run(digests, source, policy, seed, dict(zip(names, values, strict=True)))
        for source in experiment.sources
        for values in grids
        for policy in experiment.policies
        for seed in seeds
    ]


def _values(experiment: Experiment, name: str) -> Sequence[Any]:
    values: Sequence[Any] = getattr(experiment.parameters, name)
    return values


def _run(
    digests: "_Digests",
    source: ExperimentSource,
    policy: ExperimentPolicy,
    seed: int | None,
    parameters: dict[str, Any],
) -> ExperimentRun:
    """Return the run; its key has digests of files instead of their paths."""
    files = {
        "workload": digests.of_path(source.workload),
        "data": digests.of_path(source.data),
        "pods": digests.of_path(source.pods),
    }
    scheduler = {
        "config": digests.of_path(policy.config),
        "plugins": [[digests.of_path(_plugin_file(p)), _plugin_name(p)] for p in policy.plugins],
    }
    definition = {
        "format": _FORMAT,
        "version": metadata.version("koordinator"),
        "source": _plain(source) | files,
        "policy": _plain(policy) | scheduler,
        "seed": seed,
        "parameters": parameters,
    }
    text = msgspec.json.encode(definition, order="sorted")
    key = hashlib.sha256(text).hexdigest()[:_KEY_DIGITS]
    return ExperimentRun(key, source, policy, seed, parameters)


def _plain(struct: ConfigStruct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(struct, enc_hook=str)
    return plain


class _Digests:
    """Digests of files and folders; each is read once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of_path(self, path: str) -> str:
        """Return the digest of an absolute path's content; any other text as it is."""
        if not Path(path).is_absolute():
            return path
        if path not in self._known:
            self._known[path] = _digest(Path(path))
        return self._known[path]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        digest.update(f"{file.relative_to(path)}\0".encode())
        try:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", source=str(file)) from None
    return digest.hexdigest()


# -- validation ------------------------------------------------------------------------------


def _resolved(experiment: Experiment, path: Path) -> Experiment:
    """Return the definition with names and absolute paths.  Raises InputError with the field."""
    folder = path.resolve().parent
    for field in ("sources", "policies"):
        if not getattr(experiment, field):
            raise InputError("must have at least one item", path=field)
    sources = tuple(_source(s, at, folder) for at, s in numbered(experiment.sources, "sources"))
    policies = tuple(_policy(p, at, folder) for at, p in numbered(experiment.policies, "policies"))
    check_unique((as_file_name(source.name) for source in sources), "sources", ".name")
    check_unique((policy.name for policy in policies), "policies", ".name")
    for at, seed in numbered(experiment.seeds, "seeds"):
        if seed < 0:
            raise InputError(f"must be at least 0, got {seed}", path=at)
    check_unique(experiment.seeds, "seeds")
    check_unique(experiment.bars, "bars")
    for at, figure in numbered(experiment.bars, "bars"):
        _name(figure, at)
    _check_parameters(experiment.parameters, sources)
    return structs.replace(
        experiment, title=experiment.title or path.stem, sources=sources, policies=policies
    )


def _source(source: ExperimentSource, at: str, folder: Path) -> ExperimentSource:
    if bool(source.workload) == bool(source.trace):
        text = "must have one of workload (a file or folder) and trace (a format)"
        raise InputError(text, path=at)
    _check_trace(source, at)
    if source.protocol:
        _check_one_of(source.protocol, PROTOCOLS, f"{at}.protocol")
    if source.until is not None:
        if source.until.total_seconds() <= 0:
            raise InputError(f"must be more than 0s, got {source.until}", path=f"{at}.until")
        if source.has_arrivals:
            text = "requires protocol: times; with arrivals, times have no meaning"
            raise InputError(text, path=f"{at}.until")
    pods = folder / source.pods
    has_pod_file = bool(source.pods) and ("/" in source.pods or pods.is_file())
    stem = Path(source.workload).name.partition(".")[0]
    return structs.replace(
        source,
        name=_name(source.name or source.trace or stem, f"{at}.name"),
        workload=_existing(source.workload, folder, f"{at}.workload"),
        data=_existing(source.data, folder, f"{at}.data"),
        pods=_existing(source.pods, folder, f"{at}.pods") if has_pod_file else source.pods,
    )


def _check_trace(source: ExperimentSource, at: str) -> None:
    if source.trace:
        _check_one_of(source.trace, TRACES, f"{at}.trace")
        if not source.data:
            problem = "is required with trace: the folder of its files"
            raise InputError(problem, path=f"{at}.data")
    elif source.data:
        raise InputError("requires trace", path=f"{at}.data")
    for field in ("pods", "topology"):
        if getattr(source, field) and source.trace != OPENB:
            raise InputError(f"requires trace: {OPENB}", path=f"{at}.{field}")


def _policy(policy: ExperimentPolicy, at: str, folder: Path) -> ExperimentPolicy:
    if not policy.policy and not policy.config:
        raise InputError("must have policy, config or both", path=at)
    if policy.policy and not policy.plugins:  # names of plugins are known once their file has run
        _check_one_of(policy.policy, tuple(POLICIES), f"{at}.policy")
    plugins = []
    for plugin_path, plugin in numbered(policy.plugins, f"{at}.plugins"):
        file = _existing(_plugin_file(plugin), folder, plugin_path)
        plugins.append(f"{file}:{_plugin_name(plugin)}" if _plugin_name(plugin) else file)
    config = policy.config
    if config and config not in BY_NAME:
        config = _existing(config, folder, f"{at}.config", f", {' or '.join(BY_NAME)}")
    stem = Path(policy.config).name.partition(".")[0]
    name = policy.name or policy.policy or stem
    return structs.replace(
        policy, name=_name(name, f"{at}.name"), config=config, plugins=tuple(plugins)
    )


def _check_parameters(
    parameters: ExperimentParameters, sources: Sequence[ExperimentSource]
) -> None:
    for name in parameters.__struct_fields__:
        check_unique(getattr(parameters, name), f"parameters.{name}")
    for at, demand in numbered(parameters.demand, "parameters.demand"):
        if not 0 < demand < inf:
            raise InputError(f"must be a ratio over 0, got {demand}", path=at)
    for at, moves in numbered(parameters.migrate, "parameters.migrate"):
        if not 0 <= moves < inf:
            raise InputError(f"must be at least 0, got {moves}", path=at)
    for source in sources:
        if parameters.demand and not (source.trace == OPENB and source.has_arrivals):
            text = f"requires sources with trace: {OPENB} and arrivals, got {source.name!r}"
            raise InputError(text, path="parameters.demand")
        if parameters.colocation and not _has_colocation(source):
            text = f"requires workload files with the field colocation, got {source.name!r}"
            raise InputError(text, path="parameters.colocation")


def _has_colocation(source: ExperimentSource) -> bool:
    path = Path(source.workload)
    is_workload = bool(source.workload) and path.suffix in {".yaml", ".yml"} and path.is_file()
    return is_workload and read_workload(path).colocation is not None


def _check_one_of(value: str, accepted: Sequence[str], path: str) -> None:
    if value not in accepted:
        hint = did_you_mean(value, accepted)
        text = f"must be one of {', '.join(accepted)}, got {value!r}{hint}"
        raise InputError(text, path=path)


def as_file_name(name: str) -> str:
    """Return the words of a name, joined by hyphens; a word has letters, digits, ``-_.`` only."""
    return "-".join("".join(c if c.isalnum() or c in "-_." else " " for c in name).split())


def _name(name: str, path: str) -> str:
    """Return the name if tables and file names can have it."""
    if len(name.encode()) > _LONGEST_NAME:
        raise InputError(f"must have at most {_LONGEST_NAME} bytes, got {name!r}", path=path)
    if not name[:1].isalnum() or not name.isprintable():
        text = f"must be printable and begin with a letter or digit, got {name!r}"
        raise InputError(text, path=path)
    return name


def _existing(name: str, folder: Path, path: str, alternatives: str = "") -> str:
    if not name:
        return ""
    absolute = folder / name
    if not absolute.exists():
        text = f"must be an existing file or folder{alternatives}, got {str(absolute)!r}"
        raise InputError(text, path=path)
    return str(absolute)


def _plugin_file(plugin: str) -> str:
    file, colon, _ = plugin.rpartition(":")
    return file if colon and file.endswith(".py") else plugin


def _plugin_name(plugin: str) -> str:
    return plugin.removeprefix(_plugin_file(plugin)).removeprefix(":")
