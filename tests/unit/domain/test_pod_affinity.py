"""Phrases for the pods that affinity terms select."""

import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.domain.pod_affinity import PodScope

WEB = LabelSelector(match_labels={"app": "web"})
NOT_OLD = LabelSelector(
    match_expressions=(LabelSelectorRequirement(key="v", operator="NotIn", values=("1", "2")),)
)


@pytest.mark.parametrize(
    ("scope", "phrase"),
    [
        (PodScope(frozenset({"home"}), None, WEB), "pods with app=web"),
        (PodScope(frozenset({"home"}), None, LabelSelector()), "pods"),
        (
            PodScope(frozenset({"home"}), None, WEB, (PodScope(frozenset(), None, NOT_OLD),)),
            "pods with app=web and v notin (1,2)",
        ),
        (PodScope(frozenset({"b", "a"}), None, WEB), "pods with app=web in namespaces a, b"),
        (PodScope(frozenset({"a"}), None, WEB), "pods with app=web in namespace a"),
        (PodScope(frozenset(), WEB, NOT_OLD), "pods with v notin (1,2) in namespaces with app=web"),
        (PodScope(frozenset(), LabelSelector(), WEB), "pods with app=web in any namespace"),
    ],
)
def test_pods_of_a_scope_in_words(scope: PodScope, phrase: str) -> None:
    """Labels as kubectl writes them; namespaces unless they are the pod's own alone."""
    assert scope.phrase("pods", "home") == phrase
