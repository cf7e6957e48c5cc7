"""Pods as components see them, by gates."""

from tests.worlds import pod

from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.transforms import replaced_resources, with_priority

REPLACE_RESOURCES = "pod.koordinator.sh/replace-resources"


def test_resources_are_renamed_and_removed() -> None:
    """CPU becomes a number of milli; existing requests are not replaced."""
    text = "cpu:kubernetes.io/batch-cpu,nvidia.com/gpu:, memory : x , a:b:c,"
    asks = {"nvidia.com/gpu": 1}
    one = pod("p", "1500m", "1Gi", requests=asks, annotations={REPLACE_RESOURCES: text})

    assert pod_requests(replaced_resources(one).spec) == {
        "kubernetes.io/batch-cpu": 1500,
        "x": 1 << 30,
    }


def test_removals_come_first_and_the_last_of_two_names_counts() -> None:
    """The order of entries in the annotation has no other influence."""
    text = "cpu:x,x:,memory:y,memory:z"
    one = pod("p", 1, "1Gi", requests={"x": 2}, annotations={REPLACE_RESOURCES: text})

    assert pod_requests(replaced_resources(one).spec) == {"x": 1000, "z": 1 << 30}


def test_a_resource_that_is_there_is_not_replaced() -> None:
    """The replaced and the present resource keep their amounts."""
    one = pod("p", 1, requests={"x": 2}, annotations={REPLACE_RESOURCES: "cpu:x"})

    assert pod_requests(replaced_resources(one).spec) == {"cpu": 1000, "x": 2}


def test_a_pod_without_priority_has_that_of_its_class() -> None:
    """By label or QoS class; one that has a priority keeps it."""
    label = "koordinator.sh/priority-class"
    assert with_priority(pod("p", labels={label: "koord-batch"})).spec.priority == 5500
    assert with_priority(pod("p", labels={"koordinator.sh/qosClass": "BE"})).spec.priority == 5500
    assert with_priority(pod("p", labels={label: "koord-batch"}, priority=7)).spec.priority == 7
