"""Quotas and queues of teams: reasons of pending pods, and usage in the objects."""

import json
import subprocess

from tests.e2e.controlplane import ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.session.manifests import Manifest, node, pod
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

PREFIX = "quota.scheduling.koordinator.sh/"
GANG = "gang.scheduling.koordinator.sh/"
API = "/apis/scheduling.sigs.k8s.io/v1alpha1"
STEPS_S = 20.0


def quota(name: str, most: str, least: str = "0", **settings: str) -> Manifest:
    """Return an ElasticQuota of so many CPUs; ``said`` has its annotations."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "annotations": {
                f"{PREFIX}{key.replace('_', '-')}": text for key, text in settings.items()
            },
        },
        "spec": {"max": {"cpu": most}, "min": {"cpu": least}},
    }


def of(quota_name: str, name: str, cpu: str = "1", **more: str) -> Manifest:
    labels = {PREFIX + "name": quota_name, **more}
    return pod(name, cpu, labels=labels, schedulerName="quotas")


def koord(*arguments: str) -> str:
    """Run koord and return what it printed."""
    command = [str(KOORD), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def annotation_of(user: User, name: str, key: str) -> str:
    """Return the CPUs that a quota reports under a key."""
    annotations = user.get("elasticquotas", name, API)["metadata"]["annotations"]
    return str(json.loads(annotations.get(PREFIX + key, "{}")).get("cpu", ""))


def test_a_pod_over_its_quota_waits_until_that_is_raised(user: User) -> None:
    """The reason stands in its condition, and what is used in the quota."""
    user.apply(node("n0", "8"), quota("red", "2"), of("red", "a"), of("red", "b"))
    user.nodes_of("a", "b")
    user.apply(of("red", "c"))

    user.wait_for_refusal("c", "Insufficient quotas, quotaName: red, runtime: cpu:2, used: cpu:2")
    eventually(
        lambda: user.get("elasticquotas", "red", API).get("status", {}).get("used") == {"cpu": "2"},
        STEPS_S,
    )
    eventually(lambda: annotation_of(user, "red", "request") == "3", STEPS_S)

    user.apply(quota("red", "3"))
    user.node_of("c", STEPS_S)
    eventually(lambda: annotation_of(user, "red", "runtime") == "3", STEPS_S)
    user.kubectl("delete", "elasticquota", "red", "--wait=false")


def test_borrowed_quota_is_reclaimed(user: User, controlplane: ControlPlane) -> None:
    """A team borrows from another; when the lender requests its minimum, pods are evicted."""
    user.apply(
        node("n1", "4"), quota("lender", "4", "2"), quota("borrower", "4", "2"), of("borrower", "a")
    )
    user.apply(*(of("borrower", name) for name in ("b", "c", "d")))
    user.nodes_of("a", "b", "c", "d")
    shown = koord("quota", "tree", f"--kubeconfig={controlplane.kubeconfig()}", "--output=json")
    (borrower,) = [q for q in json.loads(shown)["trees"][0]["quotas"] if q["name"] == "borrower"]
    assert (borrower["used"], borrower["runtime"]) == ({"cpu": "4"}, {"cpu": "4"})
    assert borrower["borrows"] == [{"from": "lender", "resource": "cpu", "amount": "2"}]

    user.apply(of("lender", "x"), of("lender", "y"))
    user.nodes_of("x", "y", within_s=60)

    eventually(
        lambda: len([p for p in user.get("pods") if p["spec"].get("nodeName")]) == 4, STEPS_S
    )
    assert not any(user.is_pending(name) for name in ("x", "y"))
    user.kubectl("delete", "elasticquota", "lender", "borrower", "--wait=false")


def test_jobs_wait_in_the_order_of_their_queue(user: User, controlplane: ControlPlane) -> None:
    """No job overtakes the head; the PodGroup has its position."""
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 2},
    }
    label = {"pod-group.scheduling.sigs.k8s.io": "train"}
    user.apply(node("n2", "4"), quota("queued", "8", "8", queue_policy="strict"))
    user.apply(of("queued", "head", "6"))
    user.refusal_of("head")
    user.apply(group, of("queued", "w-0", "1", **label), of("queued", "w-1", "1", **label))

    def annotations() -> dict[str, str]:
        values: dict[str, str] = user.get("podgroups", "train", API)["metadata"].get(
            "annotations", {}
        )
        return values

    eventually(lambda: annotations().get(GANG + "queue-position") == "2", STEPS_S)
    assert f"the first is {user.namespace}/head" in annotations()[GANG + "queue-reason"]
    assert user.is_pending("w-0")
    at = f"--kubeconfig={controlplane.kubeconfig()}"
    shown = json.loads(koord("gang", "show", f"{user.namespace}/train", at, "--output=json"))
    assert (shown["queuePosition"], shown["minMember"], shown["present"]) == (2, 2, 2)

    user.kubectl("delete", "pod", "head", "--wait=false")
    user.nodes_of("w-0", "w-1")
    eventually(lambda: GANG + "queue-position" not in annotations(), STEPS_S)
    user.kubectl("delete", "elasticquota", "queued", "--wait=false")


def test_invalid_quota_gets_an_event(user: User) -> None:
    """There is no quota admission here: the scheduler reports the error."""
    user.apply(quota("odd", "1", "2"))

    event = user.event_of("odd", "InvalidElasticQuota")

    assert "spec.min[cpu]: must be at most 1, as in spec.max, got '2'" in event["message"]
    eventually(lambda: user.validity("elasticquotas", "odd", API) == "False", STEPS_S)
    user.apply(quota("odd", "2", "2"))
    eventually(lambda: user.validity("elasticquotas", "odd", API) == "True", STEPS_S)
    user.kubectl("delete", "elasticquota", "odd", "--wait=false")
