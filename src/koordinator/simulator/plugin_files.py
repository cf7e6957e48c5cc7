"""Out-of-tree plugins from Python files, and faults that name their plugin."""

import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, wraps
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from koordinator.foundation.errors import Fault, FaultHandler, InputError, KoordinatorError
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.profile import builtin_plugins

_LONGEST: Final = 300  # characters of an exception's text


class PluginError(KoordinatorError):
    """Exception of an out-of-tree plugin; ``plugin`` is its name."""

    def __init__(self, plugin: str, problem: str) -> None:
        self.plugin = plugin
        super().__init__(f"plugin {plugin}: {problem}")


def load_plugins(
    plugins: Iterable[PluginSpec[Any] | Path | str] | PluginSpec[Any] | Path | str,
) -> tuple[PluginSpec[Any], ...]:
    """Return plugins, reading those given as ``FILE.py`` or ``FILE.py:NAME``.

    NAME is a variable of the file or the name of a plugin; without it all plugins of the file
    count.  Raises InputError for a file that can't be loaded or has no such plugin.
    """
    if isinstance(plugins, PluginSpec | Path | str):
        plugins = (plugins,)
    specs: dict[str, PluginSpec[Any]] = {}
    for given in plugins:
        for spec in (given,) if isinstance(given, PluginSpec) else _of_file(str(given)):
            _check_return_type(spec)
            if spec.name in _builtin_names():
                text = f"must not have the name of a plugin of koordinator, got {spec.name!r}"
                raise InputError(text, source=str(given) if given is not spec else "plugins")
            if specs.get(spec.name, spec) is not spec:
                text = f"must be given once, got two plugins named {spec.name!r}"
                raise InputError(text, source="plugins")
            specs[spec.name] = spec
    return tuple(specs.values())


@cache
def _builtin_names() -> frozenset[str]:
    return frozenset(spec.name for spec in builtin_plugins())


def _check_return_type(spec: PluginSpec[Any]) -> None:
    try:
        _ = spec.plugin_type
    except (KeyError, NameError, TypeError) as error:
        text = f"build of {spec.name} must have its return type as an annotation: {error!r}"
        raise InputError(text, source="plugins") from None


def _of_file(given: str) -> Sequence[PluginSpec[Any]]:
    path, name = _split(given)
    module = _module(Path(path))
    specs = {
        variable: value for variable, value in vars(module).items() if isinstance(value, PluginSpec)
    }
    own = {id(s): s for s in specs.values() if s.name not in _builtin_names() or name}
    if not own:
        raise InputError("has no koordinator.scheduler.contract.PluginSpec", source=path)
    if not name:
        return tuple(own.values())
    for variable, spec in specs.items():
        if name in {variable, spec.name}:
            return (spec,)
    accepted = ", ".join(f"{variable} ({spec.name})" for variable, spec in specs.items())
    raise InputError(f"must be one of {accepted}, got {name!r}", source=path)


def _split(given: str) -> tuple[str, str]:
    path, colon, name = given.rpartition(":")
    return (path, name) if colon and path.endswith(".py") else (given, "")


def _module(path: Path) -> ModuleType:
    """Execute a file as a module of its own.  Raises InputError if that fails."""
    if path.suffix != ".py" or not path.is_file():
        raise InputError("must be a Python file, as FILE.py or FILE.py:NAME", source=str(path))
    name = f"koordinator_plugin_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("cannot be loaded", source=str(path))
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and msgspec look types up in it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot be loaded: {_text(error, path)}", source=str(path)) from error
    return module


def _text(error: BaseException, path: Path | None = None) -> str:
    """Return type and text of an exception, with its last line in a file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if path is not None and Path(f.filename) == path]
    text = " ".join(str(error).split())[:_LONGEST]
    at = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {text}{at}".removesuffix(": ")


def naming_plugins(plugins: Iterable[PluginSpec[Any]]) -> FaultHandler:
    """Return a handler that raises PluginError for faults of these plugins, others as they are."""
    names = frozenset(spec.name for spec in plugins)

    def handle(fault: Fault) -> None:
        if fault.source in names:
            frames = traceback.extract_tb(fault.error.__traceback__)
            at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
            problem = f"failed in {fault.stage} of {fault.about or 'a pod'}: {_text(fault.error)}"
            raise PluginError(fault.source, problem + at) from fault.error
        raise fault.error

    return handle


def guarded(plugins: Iterable[PluginSpec[Any]]) -> list[PluginSpec[Any]]:
    """Return the plugins so that an exception while they are built names them."""
    return [replace(spec, build=_guarded(spec)) for spec in plugins]


def _guarded(spec: PluginSpec[Any]) -> Callable[..., Any]:
    @wraps(spec.build)  # the return type gives the plugin's extension points
    def build(*args: Any) -> Any:
        try:
            return spec.build(*args)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise PluginError(spec.name, f"cannot be built: {_text(error)}") from error

    return build
