"""Results of expressions for a device, as given by Kubernetes' own evaluator."""

import pytest

from koordinator.api.codec import decode
from koordinator.api.dynamic_resources import PoolDevice
from koordinator.domain.dynamic_resources.selectors import (
    compile_selector,
    device_variables,
    matches,
)
from koordinator.foundation.cel import CelError
from koordinator.foundation.errors import InputError

A, C = 'device.attributes["g"]', 'device.capacity["g"]'
NO_BOOL = "CEL result of type {} could not be converted to bool"
DEVICE = decode(
    {
        "name": "d",
        "attributes": {
            "address": {"string": "10.1.2.3"},
            "index": {"int": 3},
            "model": {"string": "a-b-c"},
            "ecc": {"bool": True},
            "driverVersion": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    },
    PoolDevice,
)


def answer(expression: str) -> bool:
    """Return the result of an expression.  Raises CelError."""
    program = compile_selector(expression)
    assert not isinstance(program, InputError), program
    return matches(program, device_variables("g", DEVICE))


@pytest.mark.parametrize(
    ("expression", "is_true"),
    [
        (f"has({A}.ecc) && !has({A}.nothing)", True),
        ("has(device.attributes.h) && has(device.capacity.h)", True),  # an empty map by default
        ("'h' in device.attributes", False),
        ("device.attributes['h'].size() == 0 && device.attributes.size() == 1", True),
        (f"{A}.?nothing.orValue(1) == 1", True),
        (f'{A}.index > 2 && {A}.index != "3"', True),
        (f"{A}.nothing || true", True),
        (f"sign({C}.memory) == 1 && sign(quantity('-1')) == -1", True),
        (f"{C}.memory.asInteger() == 42949672960", True),
        (f"{C}.memory.compareTo(quantity('40960Mi')) == 0", True),
        (f"{A}.driverVersion == semver('1.2.3+build')", True),
        ("semver('1.2.3-2').isLessThan(semver('1.2.3-10'))", True),
        (f"cidr('10.0.0.0/8').containsIP({A}.address)", True),
        (f"{A}.exists(name, value, name == 'ecc' && value)", True),
        (f"{A}.transformList(name, value, name).sort()[0] == 'address'", True),
        (f"{C}.all(name, amount, amount.compareTo(quantity('1Gi')) > 0)", True),
        ("[1, 2].exists(device, device == 2)", True),
    ],
)
def test_expressions_say_of_a_device_what_they_say_in_kubernetes(
    expression: str, is_true: bool
) -> None:
    """Attributes, capacity and what is missing."""
    assert answer(expression) is is_true


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"{A}.nothing == 1", "no such key: nothing"),
        ("device.attributes.h.x == 1", "no such key: x"),
        (f"{A}.index > '3'", "no such overload"),
        (f"!{A}.index", "no such overload"),
        (f"{A}.index", f"{NO_BOOL.format('int')}: unsupported type conversion from 'int' to bool"),
        ("quantity('0.5').asInteger() == 1", "cannot convert value to integer"),
    ],
)
def test_errors_are_those_of_kubernetes(expression: str, message: str) -> None:
    """The errors are part of the reason why a pod is rejected."""
    with pytest.raises(CelError) as raised:
        answer(expression)
    assert str(raised.value) == message


def test_the_sign_of_an_amount_is_no_method() -> None:
    """The API server refuses it, too."""
    assert isinstance(compile_selector("quantity('1').sign() == 1"), InputError)
