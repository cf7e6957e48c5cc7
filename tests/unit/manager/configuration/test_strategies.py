"""Strategies of nodes, computed once for nodes with equal labels and annotations."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.configuration.test_checks import config

from koordinator.api.meta import ObjectMeta
from koordinator.manager.configuration.reader import SloConfig, read_config
from koordinator.manager.configuration.strategies import (
    Strategies,
    amplification_strategy,
    colocation_strategy,
    is_colocated,
    normalization_strategy,
    resolved,
)

PREFIX = "node.koordinator.sh/"


def entry(name: str, of: Any, **more: Any) -> dict[str, Any]:
    """Return an entry of that name for the nodes that ``of`` picks."""
    return {"name": name, "nodeSelector": {"matchExpressions": [of]}, **more}


IN_A = {"key": "pool", "operator": "In", "values": ["a"]}
IN_B = {"key": "zone", "operator": "In", "values": ["b"]}
NO_ZONE = {"key": "zone", "operator": "DoesNotExist"}
FULL, PROBLEMS = read_config(
    config(
        colocation={
            "enable": True,
            "nodeConfigs": [
                entry("a", of=IN_A, cpuReclaimThresholdPercent=40),
                entry("b", of=IN_B, enable=False),
            ],
        },
        cpu_normalization={"enable": True, "nodeConfigs": [entry("a", of=IN_A, defaultRatio=1.5)]},
        resource_amplification={
            "enable": True,
            "nodeConfigs": [entry("b", of=NO_ZONE, resourceAmplificationRatio={"cpu": 2})],
        },
    )
)
METAS = st.builds(
    lambda labels, text: ObjectMeta(
        labels=labels, annotations={f"{PREFIX}colocation-strategy": text} if text else {}
    ),
    st.dictionaries(
        st.sampled_from(["pool", "zone", "other", f"{PREFIX}cpu-reclaim-ratio"]),
        st.sampled_from(["a", "b", "0.3", ""]),
    ),
    st.sampled_from(["", "{", "null", '{"enable": false}', '{"degradeTimeMinutes": 3}']),
)


@given(st.lists(METAS, max_size=8))
def test_alike_nodes_get_what_each_would_get_alone(metas: list[ObjectMeta]) -> None:
    """Every label and annotation that a strategy depends on distinguishes nodes."""
    assert not PROBLEMS
    assert FULL.colocation is not None
    assert FULL.normalization is not None
    assert FULL.amplification is not None
    strategies = Strategies(FULL)
    for meta in metas:
        of_node, written = strategies.of(meta), colocation_strategy(FULL.colocation, meta)
        assert of_node.written == written
        assert of_node.colocation == resolved(written)
        assert of_node.is_colocated == is_colocated(FULL.colocation, written)
        assert of_node.normalization == normalization_strategy(FULL.normalization, meta)
        assert of_node.amplification == amplification_strategy(FULL.amplification, meta)


def test_where_nothing_was_ever_valid_nothing_is_known() -> None:
    """Nothing is changed then."""
    result = Strategies(SloConfig()).of(ObjectMeta(labels={"pool": "a"}))

    assert (result.written, result.colocation, result.normalization) == (None, None, None)
    assert not result.is_colocated
