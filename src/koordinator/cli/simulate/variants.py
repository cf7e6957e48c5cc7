"""Variants of a run: what ``--compare`` names, and one run per seed of each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.policies import BY_NAME, POLICIES

COLOCATION = "colocation"
DESCHEDULER = "descheduler"
_NO = "no-"
SWITCHES = (_NO + COLOCATION, _NO + DESCHEDULER)


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to run the source; ``label`` is empty for a run that is not compared."""

    policy: str = ""
    config: str = ""
    colocates: bool = True
    descheduler: bool = True
    label: str = ""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A variant with its seed, None for the source's own."""

    variant: Variant
    seed: int | None
    number: int  # from 0
    total: int  # runs

    @property
    def suffix(self) -> str:
        """Part of file names that distinguishes several runs; empty for a single run."""
        if self.total == 1:
            return ""
        label = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.variant.label)
        seed = "" if self.seed is None else f"seed-{self.seed}"
        return f"-{'-'.join(part for part in (label, seed) if part)}"

    def file(self, path: Path | None) -> Path | None:
        """Return the run's file: the given one, with the suffix before its extensions."""
        if path is None or not self.suffix:
            return path
        stem, dot, extensions = path.name.partition(".")
        return path.with_name(f"{stem}{self.suffix}{dot}{extensions}")


def compared(given: Variant, names: Sequence[str], plugins: Sequence[str]) -> list[Variant]:
    """Return the variants of ``--compare``, each a change of the given run.

    With a single name the given run is the second variant.  ``plugins`` are names of policies of
    one's own.  Raises InputError for an unknown name and for one that is given twice.
    """
    if not names:
        return [given]
    variants = [_variant(given, name, plugins) for name in names]
    if len(variants) == 1:
        variants.append(replace(given, label=_label(given, names[0])))
    labels = [variant.label for variant in variants]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"must be given once, got {label!r} twice", source="--compare")
    return variants


def planned_runs(variants: Sequence[Variant], seeds: Sequence[int]) -> Iterator[PlannedRun]:
    """Yield a run per variant and seed."""
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise InputError(f"must be given once, got {seed} twice", source="--seed")
    total, number = len(variants) * max(len(seeds), 1), 0
    for variant in variants:
        of_variant: Sequence[int | None] = seeds or (None,)
        for drawn in of_variant:
            yield PlannedRun(variant, drawn, number, total)
            number += 1


def _variant(given: Variant, name: str, plugins: Sequence[str]) -> Variant:
    if name in {COLOCATION, _NO + COLOCATION}:
        return replace(given, colocates=name == COLOCATION, label=name)
    if name in {DESCHEDULER, _NO + DESCHEDULER}:
        return replace(given, descheduler=name == DESCHEDULER, label=name)
    if name in POLICIES or name in plugins:
        return replace(given, policy=name, label=name)
    if name in BY_NAME or Path(name).is_file():
        return replace(given, config=name, policy="", label=name)
    accepted = ", ".join((*POLICIES, *plugins, *BY_NAME, *SWITCHES))
    text = f"must be one of {accepted}, or a configuration's file, got {name!r}"
    raise InputError(text, source="--compare")


def _label(given: Variant, other: str) -> str:
    """Return the label of the run as it was given, compared with another."""
    if other in SWITCHES:
        return other.removeprefix(_NO)
    return given.policy or given.config or "as given"
