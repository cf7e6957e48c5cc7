"""Virtual templates in a ConfigMap."""

import pytest
from tests.unit.domain.devices.machines import GIB, MEMORY, NPU_CORE, NPU_CPU, NPU_DVPP

from koordinator.api.core import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.model import model_key, read_templates
from koordinator.foundation.errors import InputError

TEXT = """
huawei-Ascend-310P:
  vir02: {huawei.com/npu-core: 2, huawei.com/npu-cpu: 2, koordinator.sh/gpu-memory: 6Gi}
  vir02_1c:
    huawei.com/npu-core: "2"
    huawei.com/npu-cpu: "1"
    huawei.com/npu-dvpp: "25"
    koordinator.sh/gpu-memory: 6Gi
  twin: {huawei.com/npu-core: 2, huawei.com/npu-cpu: 2, koordinator.sh/gpu-memory: 6144Mi}
"""


def config_map(text: str) -> ConfigMap:
    meta = ObjectMeta(name="gpu-shared-resource-templates", namespace="koordinator-system")
    return ConfigMap(metadata=meta, data={"data.yaml": text})


def test_a_template_matches_its_exact_amounts() -> None:
    """Names and values must be equal; several templates may match."""
    table = read_templates(config_map(TEXT))
    part = {NPU_CORE: 2, NPU_CPU: 2, MEMORY: 6 * GIB}

    assert table.matching(part) == {model_key("huawei", "Ascend-310P"): ("vir02", "twin")}
    assert table.matching(part | {NPU_CPU: 1}) == {}
    assert table.matching(part | {NPU_CPU: 1, NPU_DVPP: 25}) == {
        "huawei-Ascend-310P": ("vir02_1c",)
    }


def test_no_data_is_no_templates() -> None:
    """A ConfigMap without the key, and one with an empty value, have no templates."""
    assert read_templates(config_map("")).models == {}
    assert read_templates(ConfigMap()).models == {}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{", "data[data.yaml]"),
        ("[]", "data[data.yaml]"),
        ("null: {}", "data[data.yaml]"),
        ("m: {t: {huawei.com/npu-core: some}}", "data[data.yaml].m.t[huawei.com/npu-core]"),
    ],
)
def test_unreadable_templates_are_refused(text: str, path: str) -> None:
    """With the name of the ConfigMap and the path."""
    with pytest.raises(InputError) as refusal:
        read_templates(config_map(text))

    assert refusal.value.subject == "ConfigMap koordinator-system/gpu-shared-resource-templates"
    assert refusal.value.path == path
