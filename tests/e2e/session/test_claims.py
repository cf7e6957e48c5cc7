"""Claims of devices on a real API server, with Kubernetes' own controller of claims beside us."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.claims import PREFIX, release_claims
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.controlplane.errors import ApiError
from tests.e2e.session.manifests import Manifest, node, pod
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

from koordinator.domain.dynamic_resources.selectors import compile_selector
from koordinator.foundation.errors import InputError

V1 = "resource.k8s.io/v1"
DRIVER = "gpu.test.example"
CREATED, UNPROCESSABLE = 201, 422


@pytest.fixture(autouse=True)
def _released(controlplane: ControlPlane) -> Iterator[None]:
    """Free and delete all claims at the end, as their controller would."""
    yield
    release_claims(controlplane.api)


@pytest.fixture
def controllers(controlplane: ControlPlane) -> None:
    """Run the controllers that create claims from templates and release claims of finished pods."""
    controlplane.start_controller_manager(
        ("resourceclaim-controller", "garbage-collector-controller")
    )


def device_class(name: str, *expressions: str) -> Manifest:
    """Return a class of devices."""
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return made("DeviceClass", name, {"selectors": selectors})


def made(kind: str, name: str, spec: Any) -> Manifest:
    """Return an object of the group."""
    return {"apiVersion": V1, "kind": kind, "metadata": {"name": name}, "spec": spec}


def gpus(where: str, count: int) -> Manifest:
    """Return the GPUs of a node, each with an index."""
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {"index": {"int": i}, "driverVersion": {"version": "1.2.3"}},
            "capacity": {"memory": {"value": "40Gi"}},
        }
        for i in range(count)
    ]
    pool = {"name": where, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": where, "pool": pool, "devices": devices}
    return made("ResourceSlice", f"{where}-gpus", spec)


def one_gpu(*expressions: str) -> Any:
    """Return the spec of a claim of one GPU."""
    selectors = [{"cel": {"expression": text}} for text in expressions]
    exactly = {"deviceClassName": "gpu", "selectors": selectors}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def templated(name: str) -> Manifest:
    """Return a pod with a claim of its own."""
    entries = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return pod(name, resourceClaims=entries)


@pytest.mark.usefixtures("controllers")
def test_pods_of_a_template_get_devices_and_leave_them_to_others(user: User) -> None:
    """The controller makes and frees claims, the scheduler gives devices, the server accepts it."""
    user.apply(
        node("bare"),
        node("n"),
        gpus("n", 2),
        device_class("gpu", f'device.driver == "{DRIVER}"'),
        made("ResourceClaimTemplate", "one", {"spec": one_gpu()}),
    )

    user.apply(templated("a"), templated("b"))
    assert user.nodes_of("a", "b") == ["n", "n"]
    claims = user.get("resourceclaims", prefix=PREFIX)
    assert sorted(devices(each)[0] for each in claims) == ["gpu-0", "gpu-1"]
    assert {each["status"]["reservedFor"][0]["name"] for each in claims} == {"a", "b"}

    user.apply(templated("c"))
    assert "cannot allocate all claims" in user.refusal_of("c")["message"]
    user.kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    assert user.node_of("c", within_s=60) == "n"


def test_a_claim_by_name_is_allocated_and_reserved_before_the_bind(user: User) -> None:
    """By the selector; two pods share it."""
    wants = f'device.attributes["{DRIVER}"].index == 1'
    user.apply(
        node("n"), gpus("n", 2), device_class("gpu"), made("ResourceClaim", "c", one_gpu(wants))
    )

    entries = [{"name": "gpu", "resourceClaimName": "c"}]
    user.apply(pod("a", resourceClaims=entries), pod("b", resourceClaims=entries))
    assert user.nodes_of("a", "b") == ["n", "n"]
    eventually(
        lambda: len(user.get("resourceclaims", "c", PREFIX)["status"]["reservedFor"]) == 2, 10
    )
    claim = user.get("resourceclaims", "c", PREFIX)
    assert devices(claim) == ["gpu-1"]
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


@pytest.mark.usefixtures("controllers")
def test_a_claim_of_a_python_client_is_used_like_any_other(
    controlplane: ControlPlane, user: User
) -> None:
    """Opaque parameters with spaces, which the API server rejects in a rewriting patch."""
    config = [{"opaque": {"driver": DRIVER, "parameters": {"mode": "fast", "parts": [1, 2]}}}]
    spec = one_gpu()
    spec["devices"]["config"] = config
    user.apply(node("n"), gpus("n", 1))
    class_ = made("DeviceClass", "gpu", {"config": config})
    post(controlplane, f"{PREFIX}/deviceclasses", class_)
    post(controlplane, user.path("resourceclaims", prefix=PREFIX), made("ResourceClaim", "c", spec))

    entries = [{"name": "gpu", "resourceClaimName": "c"}]
    user.apply(pod("a", resourceClaims=entries), pod("b", resourceClaims=entries))
    assert user.nodes_of("a", "b") == ["n", "n"]
    claim = user.get("resourceclaims", "c", PREFIX)
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    given = claim["status"]["allocation"]["devices"]["config"]
    assert [each["opaque"] for each in given] == [config[0]["opaque"]] * 2

    user.kubectl("delete", "pod", "a", "b", "--grace-period=0", "--force")
    user.kubectl("delete", "resourceclaim", "c", "--timeout=60s")  # a patch could not free it


def post(controlplane: ControlPlane, path: str, manifest: Manifest) -> None:
    """Create an object as Python's json writes it."""
    connection = controlplane.api.connect(10)
    token = {"Authorization": f"Bearer {controlplane.api.token}"}
    try:
        headers = {"Content-Type": "application/json", **token}
        connection.request("POST", path, json.dumps(manifest), headers)
        answer = connection.getresponse()
        assert answer.status == CREATED, answer.read()
    finally:
        connection.close()


def devices(claim: Manifest) -> list[str]:
    """Return the devices that a claim has got."""
    results = claim["status"]["allocation"]["devices"]["results"]
    return [result["device"] for result in results]


A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
ACCEPTED = (
    "true",
    f'device.driver == "{DRIVER}"',
    f"{A}.index > 3 && {A}.model in ['a', 'b']",
    f"{A}.model > 3",  # known only when there is a device
    f"has({A}.ecc) ? {A}.ecc : false",
    f"{A}.?ecc.orValue(false)",
    f"{C}.memory.compareTo(quantity('40Gi')) >= 0 && isQuantity('1')",
    f"{C}.memory.sub(quantity('1Gi')).add(1).isGreaterThan(quantity('1'))",
    f"{A}.driverVersion.isLessThan(semver('2.0.0')) && {A}.driverVersion.major() == 1",
    f"cel.bind(a, {A}, a.index == 1 || a.index == 2)",
    f"['a', 'b'].exists(m, m == {A}.model)",
    f"{A}.model.matches('^[ah]100$')",
    f"'{DRIVER}' in device.attributes",
    f"{A}.model.lowerAscii().split('-')[0] == 'a'",
    f"sets.contains([1, 2], [{A}.index])",
    f"{A}.index",
    f"size({A}.model) == 2 || [1, 2].sum() == 3",
    "ip('127.0.0.1').isLoopback() && isIP('::1') && ip.isCanonical('::1')",
    f"cidr('10.0.0.0/8').containsIP({A}.address) && isCIDR('::/0')",
    f"{A}.exists(name, value, name == 'ecc' && value)",
    "{'a': 1}.transformMap(k, v, v > 0, v + 1).a == 2",
    "[2, 1].transformList(i, v, i + v) == [2, 2]",
)
#: An API server takes new expressions that the release before can read as well, so 1.35 and later.
#: A scheduler reads all that its own release knows.
SINCE_34 = (
    "[2, 1].transformList(i, v, i + v).sort() == [2, 2]",
    "[[1], [2]].flatten().slice(0, 1).reverse() == [1] && lists.range(2).size() == 2",
    "['aa', 'b'].sortBy(t, size(t)).first().value() == strings.quote('b')",
)
REFUSED = (
    "",
    "device.",
    "device.nothing",
    "nothing == 1",
    "device.driver > 3",
    "device.driver",
    "1 + 'a' == 2",
    "quantity('1') > quantity('2')",
    "device.driver.shout()",
    "[1, 2].exists(m, m == 'a')",
    "1 == 1.0",
    "device.driver.matches('(a')",
    "has(device)",
    "[1].all(i, i, true)",
    "[1].transformMapEntry(i, v, v)",
    "[[1]].sort() == []",
    "ip(3).isLoopback()",
    "[1].existsOne(v, v == 1)",
)
#: The API server knows these; here they are undeclared.
BEYOND = (
    "duration('1s') < duration('2s')",
    "url('https://a').getHost() == 'a'",
    "format.dns1123Label().validate('a').hasValue()",
    "'%d'.format([1]) == '1'",
)


def test_selectors_are_accepted_and_refused_as_by_the_api_server(
    controlplane: ControlPlane,
) -> None:
    """Unsupported functions are refused by name before the expression is evaluated."""
    for expression in (*ACCEPTED, *REFUSED):
        selector = compile_selector(expression)
        is_taken = is_accepted(controlplane, expression)
        assert (expression, is_taken) == (
            expression,
            not isinstance(selector, InputError) and bool(expression),
        )
        assert is_taken is (expression in ACCEPTED), expression
    for expression in SINCE_34:
        assert is_accepted(controlplane, expression) is (kubernetes_minor() > 34), expression
        assert not isinstance(compile_selector(expression), InputError), expression
    for expression in BEYOND:
        assert is_accepted(controlplane, expression)
        assert "undeclared reference to" in str(compile_selector(expression))


def is_accepted(controlplane: ControlPlane, expression: str) -> bool:
    """Return whether the API server would store a class with that selector."""
    try:
        controlplane.api.request(
            "POST", f"{PREFIX}/deviceclasses?dryRun=All", device_class("probe", expression)
        )
    except ApiError as error:
        if error.status != UNPROCESSABLE:
            raise
        return False
    return True
