"""Definition of an experiment: the grid, errors with field paths, and keys of runs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from koordinator.foundation.errors import InputError
from koordinator.simulator.experiments.definition import planned_runs, read_experiment

SOURCE = {"workload": "cluster.yaml"}
POLICY = {"policy": "fgd"}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a definition beside a workload and a folder of a trace."""
    (tmp_path / "cluster.yaml").write_bytes(Path("examples/small-gpu-cluster.yaml").read_bytes())
    (tmp_path / "openb").mkdir()
    (tmp_path / "own.py").write_text("# plugins")

    def definition(**fields: object) -> Path:
        path = tmp_path / "experiment.yaml"
        path.write_text(yaml.safe_dump({"sources": [SOURCE], "policies": [POLICY]} | fields))
        return path

    return definition


def keys(path: Path) -> list[str]:
    return [run.key for run in planned_runs(read_experiment(path))]


def test_grid_has_every_combination_in_order(write: Write) -> None:
    """Parameters vary more slowly than policies, and seeds are the fastest."""
    path = write(
        policies=[POLICY, {"config": "kubernetes"}],
        seeds=[1, 2],
        parameters={"migrate": [0, 50]},
    )
    runs = planned_runs(read_experiment(path))

    assert [tuple(run.labels.values()) for run in runs] == [
        ("cluster", policy, seed, migrate)
        for migrate in (0, 50)
        for policy in ("fgd", "kubernetes")
        for seed in (1, 2)
    ]
    assert len({run.key for run in runs}) == 8


@pytest.mark.parametrize(
    ("fields", "path", "problem"),
    [
        ({"seedz": [1]}, "seedz", 'did you mean "seeds"?'),
        ({"sources": []}, "sources", "must have at least one item"),
        ({"sources": [{"worklaod": "x"}]}, "sources[0].worklaod", 'did you mean "workload"?'),
        ({"sources": [{"workload": "no.yaml"}]}, "sources[0].workload", "must be an existing file"),
        ({"sources": [{"trace": "openbb"}]}, "sources[0].trace", 'did you mean "openb"?'),
        ({"sources": [{"trace": "openb"}]}, "sources[0].data", "is required with trace"),
        ({"sources": [{}]}, "sources[0]", "must have one of workload"),
        ({"sources": [SOURCE, SOURCE]}, "sources[1].name", "must be unique, got 'cluster'"),
        ({"sources": [SOURCE | {"name": "=1"}]}, "sources[0].name", "begin with a letter"),
        ({"sources": [SOURCE | {"pods": "x"}]}, "sources[0].pods", "requires trace: openb"),
        (
            {"sources": [{"trace": "openb", "data": "openb", "until": "1h"}]},
            "sources[0].until",
            "requires protocol: times",
        ),
        ({"policies": [{"policy": "fdg"}]}, "policies[0].policy", 'did you mean "fgd"?'),
        ({"policies": [{}]}, "policies[0]", "must have policy, config or both"),
        ({"policies": [{"config": "x"}]}, "policies[0].config", "koordinator or kubernetes"),
        ({"seeds": [1, -1]}, "seeds[1]", "must be at least 0, got -1"),
        (
            {"sources": [SOURCE | {"name": "a b"}, SOURCE | {"name": "a/b"}]},
            "sources[1].name",
            "must be unique, got 'a-b' again",
        ),
        ({"sources": [SOURCE | {"name": "a" * 129}]}, "sources[0].name", "at most 128 bytes"),
        ({"seeds": [1, 1]}, "seeds[1]", "must be unique, got 1 again"),
        (
            {"bars": ["moves", "moves", ""]},
            "bars[1]",
            "must be unique, got 'moves' again",
        ),
        ({"bars": ["moves", ""]}, "bars[1]", "begin with a letter or digit, got ''"),
        ({"parameters": {"demand": [1.3]}}, "parameters.demand", "requires sources with trace"),
        ({"parameters": {"migrate": [-1]}}, "parameters.migrate[0]", "must be at least 0"),
        ({"parameters": {"colocation": [True]}}, "parameters.colocation", "field colocation"),
    ],
)
def test_wrong_definition_is_rejected_with_its_field(
    write: Write, fields: dict[str, object], path: str, problem: str
) -> None:
    """Before any run."""
    with pytest.raises(InputError) as caught:
        planned_runs(read_experiment(write(**fields)))

    assert caught.value.path == path
    assert problem in caught.value.problem
    assert caught.value.source.endswith("experiment.yaml")


def test_key_changes_with_definition_and_content_of_files_only(write: Write) -> None:
    """Keys of other runs, titles and places of files don't matter."""
    policy = {"policy": "Own", "plugins": ["own.py"]}
    first = keys(write(seeds=[1, 2], policies=[POLICY, policy]))

    assert keys(write(title="other", seeds=[2, 1, 3], policies=[POLICY, policy]))[:2] == [
        first[1],
        first[0],
    ]
    path = write(seeds=[1, 2], policies=[POLICY, policy])
    (path.parent / "own.py").write_text("# changed")
    second = keys(path)
    assert second[:2] == first[:2]
    assert not set(second[2:]) & set(first)
    (path.parent / "cluster.yaml").write_text("# changed")
    assert not set(keys(path)) & {*first, *second}
