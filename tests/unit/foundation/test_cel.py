"""The Common Expression Language: what expressions mean, and which are refused before they run."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.cel import (
    DYN,
    INT,
    STRING,
    CelEnvironment,
    CelError,
    CelType,
)
from koordinator.foundation.errors import InputError

ENVIRONMENT = CelEnvironment({"x": DYN, "s": STRING, "l": CelType("list", (INT,))})
VALUES = {"x": {"a": 1, "b": "h100", "t": True}, "s": "abc", "l": [1, 2, 3]}
STEPS = 10_000


def evaluated(text: str) -> Any:
    """Return the value of an expression over ``VALUES``."""
    return ENVIRONMENT.compile(text).evaluate(VALUES, STEPS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x.a == 1", True),
        ("1 + 2 * 3 - -4", 11),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("x.z == 1 || true", True),  # what decides makes up for an error on the other side
        ("x.z == 1 && false", False),
        ("x.a > 5 ? x.z : 'small'", "small"),
        ("has(x.a) && !has(x.z)", True),
        ("'a' in x && !('z' in x) && 2 in l", True),
        ("l.exists(i, i == 2) && l.all(i, i > 0) && l.exists_one(i, i == 3)", True),
        ("l.exists(i, 6 / (i - 1) == 6)", True),
        ("l.map(i, i > 1, i * 2)", [4, 6]),
        ("l.filter(i, i % 2 == 1)", [1, 3]),
        ("cel.bind(n, x.a, n + n)", 2),
        ("x.?z.orValue('none')", "none"),
        ("x.?b.hasValue() && x[?'a'].value() == 1", True),
        ("[1, ?x.?z, ?x.?a]", [1, 1]),
        ("optional.of(2).optMap(v, v * 2).orValue(0)", 4),
        ("s.startsWith('a') && s.endsWith('c') && s.contains('b')", True),
        ("s.matches('^a.c$') && !s.matches('^b')", True),
        ("'A-b'.lowerAscii().split('-').join('+')", "a+b"),
        ("'hello'.substring(1, 3) + 'x'.replace('x', 'y')", "ely"),
        ("string(x.a) + string(1.5) + string(true)", "11.5true"),
        ("int('-12') + int(3.9)", -9),
        ("size(l) + l.size() + s.size()", 9),
        ("1 < 2.5 && dyn(1) == 1.0 && dyn(1) != '1' && dyn(true) != 1", True),
        ("type(x.b) == string", True),
        ("sets.contains([1, 2], [2]) && sets.intersects(l, [3, 9])", True),
        ("{'k': l[0]}.k", 1),
        (r"r'\d' + '\x41B' == '\\dAB'", True),
        ("!!true // a comment", True),
        ("18446744073709551615u > 1u", True),
        ("l.all(i, v, i + 1 == v) && l.existsOne(i, v, v == 2)", True),
        ("l.exists(i, v, 6 / i == 6)", True),  # one that holds makes up for another's error
        ("{'a': 1, 'b': 2}.exists(k, v, k == 'b' && v == 2)", True),
        ("l.transformList(i, v, v > 1, i * v)", [2, 6]),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 2)", {"b": 4}),
        ("{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, {v: k})", {"x": "a", "y": "b"}),
        ("l.transformList(i, v, l.map(v, v * 2)[i] + v)", [3, 6, 9]),  # each v is its own
        ("['aaa', 'b', 'cc'].sortBy(t, size(t)) + ['b', 'a'].sort()", ["b", "cc", "aaa", "a", "b"]),
        ("l.slice(1, 3).reverse() + [[1], [2]].flatten() + [1, 1].distinct()", [3, 2, 1, 2, 1]),
        ("[dyn(1), 1.0, true, 'a', 'a', [1], [1.0]].distinct().size()", 4),
        ("lists.range(3) + [l.first().value(), l.last().value()]", [0, 1, 2, 1, 3]),
        ("[].first().hasValue()", False),
        (r"strings.quote('a\"b\n')", '"a\\"b\\n"'),
        ("ip('0:0::1') == ip('::1') && string(ip('::1.2.3.4')) == '::102:304'", True),
        ("isIP('1.2.3.04') || isIP('::ffff:1.2.3.4') || isIP('fe80::1%eth0') || isIP('')", False),
        ("ip.isCanonical('::1') && !ip.isCanonical('0::1')", True),
        ("ip('127.9.0.1').isLoopback() && ip('::').isUnspecified()", True),
        ("ip('ff12::1').isLinkLocalMulticast() && ip('224.0.0.5').isLinkLocalMulticast()", True),
        ("ip('fe80::1').isLinkLocalUnicast() && ip('1.2.3.4').family() == 4", True),
        ("ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()", True),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('::/0').containsIP('1.2.3.4')", True),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", True),
        ("cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))", False),
        (
            "string(cidr('10.0.0.1/8')) + string(cidr('10.0.0.1/8').masked())",
            "10.0.0.1/810.0.0.0/8",
        ),
        ("cidr('10.0.0.1/8').ip() == ip('10.0.0.1') && cidr('::/9').prefixLength() == 9", True),
        # Numbers as Go writes and reads them.
        ("string(100000.0) + string(1234567.0) + string(0.00001)", "1000001.234567e+061e-05"),
        ("string(-0.0) + string(1.0 / 0.0) + string(0.0 / 0.0)", "-0+InfNaN"),
        ("double('0x1p-2') + double('1e2')", 100.25),
        # A place behind the end is none, but of nothing.
        ("['abc'.indexOf('c', 4), 'abc'.indexOf('', 7), 'abc'.lastIndexOf('c', 3)]", [-1, 7, -1]),
        (r"'\t\u00a0a\u001c'.trim() == 'a\u001c'", True),
        ("{s: 1, 'abc': 2}.abc", 2),
        ("isCIDR('1.2.3.4') || isCIDR('1.2.3.4/08') || isCIDR('1.2.3.4/255.0.0.0')", False),
    ],
)
def test_expressions_have_the_value_of_the_specification(text: str, value: object) -> None:
    """Operators, macros, optionals, text, lists."""
    result = evaluated(text)

    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ip('x')", 'IP Address "x" parse error during conversion from string'),
        ("ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed'),
        ("ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        ("cidr('1.2.3.4')", "no '/'"),
        ("cidr('1.0.0.0/8').containsIP('x')", "no such overload"),
        ("l.slice(2, 1)", "start index must be less than or equal to end index"),
        ("l.slice(0, 4)", "list is length 3"),
        ("l.slice(-1, 1)", "negative indexes not supported"),
        ("[[1]].flatten(-1)", "level must be non-negative"),
        ("[dyn(1), dyn('a')].sort()", "list elements must have the same type"),
        ("[x].sortBy(i, x)", "list elements must be comparable"),
        ("{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k})", "insert failed: key 1 already exists"),
        ("double(' 1')", "type conversion error from 'string' to 'double'"),
        ("double('1e400')", "type conversion error from 'string' to 'double'"),
        ("'abc'.indexOf('a', -1)", "index out of range: -1"),
        ("lists.range(10000000)", "actual cost limit exceeded"),
        ("lists.range(200).map(i, lists.range(9999)).flatten()", "actual cost limit exceeded"),
        ("lists.range(99).map(i, [i]).distinct()", "actual cost limit exceeded"),
        (f"lists.range(9999).map(i, '{'a' * 120}').join()", "actual cost limit exceeded"),
        ("x.z", "no such key: z"),
        ("x.b > 3", "no such overload"),
        ("x.a && true", "no such overload"),
        ("1 / (x.a - 1)", "division by zero"),
        ("1 % (x.a - 1)", "modulus by zero"),
        ("9223372036854775807 + x.a", "integer overflow"),
        ("1u - 2u", "unsigned integer overflow"),
        ("l[3]", "index out of bounds: 3"),
        ("optional.none().value()", "optional.none() dereference"),
        ("x.b.matches('(' + 'a')", "error parsing regexp: missing ): (a"),
        ("int('1_0')", "type conversion error"),
        ("l.all(i, 6 / (i - 1) > 0)", "division by zero"),
    ],
)
def test_failed_evaluation_has_a_reason(text: str, message: str) -> None:
    """At run time, since the types were not known before."""
    with pytest.raises(CelError) as raised:
        evaluated(text)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x.a ==", "line 1, column 7: mismatched input '<EOF>'"),
        ("x.a == 1 1", "column 10"),
        ("'abc", "token recognition error"),
        ("nothing", "undeclared reference to 'nothing'"),
        ("s.shout()", "undeclared reference to 'shout'"),
        ("duration('1s')", "undeclared reference to 'duration'"),
        ("s > 3", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("l.exists(i, i == 'a')", "'(int, string)'"),
        ("l.map(i, s.size)", "does not support field selection"),
        ("has(s)", "invalid argument to has() macro"),
        ("l.all(1, true)", "argument must be a simple name"),
        ("s.matches('(a')", "error parsing regexp"),
        ("9223372036854775808", "invalid int literal"),
        ("for", "reserved identifier: for"),
        ("l.all(i, i, true)", "duplicate variable name: i"),
        ("l.all(i.x, v, true)", "argument must be a simple name"),
        ("l.transformMapEntry(i, v, v)", "no matching overload for 'cel.@mapInsert'"),
        ("l.sortBy(i, [i])", "no matching overload for '@sortByAssociatedKeys'"),
        ("s.all(i, v, true)", "cannot be range of a comprehension"),
        ("ip(3)", "found no matching overload for 'ip'"),
    ],
)
def test_invalid_expression_is_rejected_at_compilation(text: str, message: str) -> None:
    """Each error names the problem, and syntax errors the position."""
    with pytest.raises(InputError) as raised:
        ENVIRONMENT.compile(text)

    assert message in str(raised.value)


def test_work_is_bounded() -> None:
    """Nested macros stop at the cost limit, and deep nesting is refused."""
    heavy = "".join(f"l.all({name}, " for name in "abcdefghi") + "true" + ")" * 9

    with pytest.raises(CelError, match="cost limit exceeded"):
        evaluated(heavy)
    for deep in ("(" * 500 + "1" + ")" * 500, "-1" + " + 1" * 500, "!" + "x" + ".a" * 500):
        with pytest.raises(InputError, match="nested"):
            ENVIRONMENT.compile(deep)
    assert evaluated("true" + " && true" * 900) is True


def test_a_regular_expression_takes_linear_time() -> None:
    """An expression that makes backtracking engines hang is answered at once."""
    assert evaluated("('a' + s).matches('(a+)+$')") is False
    assert (
        ENVIRONMENT.compile("s.matches('^(a+)+$')").evaluate(
            {**VALUES, "s": "a" * 2000 + "b"}, STEPS
        )
        is False
    )


@given(st.text("xsl.ab01'\"[]{}()?:!&|<>=+-*/% ,\\"))
def test_no_text_breaks_anything(text: str) -> None:
    """Every expression has a value, has an error, or is refused."""
    with suppress(CelError, InputError):
        ENVIRONMENT.compile(text).evaluate(VALUES, STEPS)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_never_leave_their_range(a: int, b: int) -> None:
    """An overflow is an error, as in the Go implementation."""
    program = CelEnvironment({"a": INT, "b": INT}).compile("[a + b, a - b, a * b]")
    exact = [a + b, a - b, a * b]
    if all(-(2**63) <= number < 2**63 for number in exact):
        assert program.evaluate({"a": a, "b": b}, STEPS) == exact
    else:
        with pytest.raises(CelError, match="integer overflow"):
            program.evaluate({"a": a, "b": b}, STEPS)
