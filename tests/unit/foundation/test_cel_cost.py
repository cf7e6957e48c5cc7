"""The cost of an expression bounds its time and memory, whatever it is put together of."""

import sys
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.foundation.cel import CelCostError, CelEnvironment, CelError
from koordinator.foundation.cel.program import Activation, CelProgram
from koordinator.foundation.errors import InputError

ENVIRONMENT = CelEnvironment({})
STEPS = 4000
CALLS_PER_STEP = 15
BYTES_PER_STEP = 300
FIXED_CALLS, FIXED_BYTES = 5000, 1 << 20

#: What makes a value of others, ``{a}``, ``{b}`` and ``{c}``, or of texts, ``{text_a}`` ….
STEP = st.sampled_from(
    [
        "[{a}, {b}, {a}, {c}, {a}, {b}, {a}, {b}]",
        "[{a}, {b}] + [{c}, {a}]",
        "{{1: {a}, 2: {b}, 3: {a}}}",
        "optional.of({a})",
        "lists.range(50).map(x, {a})",
        "lists.range(60).map(x, [x, {a}, {b}])",
        "lists.range(9).map(x, lists.range(9).map(y, {{x: {a}, y: {b}}}))",
        "lists.range(40).transformMap(i, x, [{a}, x])",
        "lists.range(40).transformMapEntry(i, x, {{i: {a}}})",
        "[{a}, {b}, {a}].distinct()",
        "[{a}, {b}].filter(x, x == {a})",
        "[[{a}], [{b}], [{a}]].flatten()",
        "[{a}, {b}, {c}].reverse()",
        "[dyn({a})].flatten(20)",
        "{text_a} + {text_b}",
        "{text_a}.replace('a', {text_b})",
        "{text_a}.split('')",
        "{text_a}.split('a').map(x, x + {text_b})",
        "[{text_a}, {text_b}, {text_a}].join({text_c})",
        "[{text_a}, {text_b}, {text_c}].sort()",
        "lists.range(30).sortBy(x, {text_a})",
        "{text_a}.findAll('a(.*c)?')",
        "{text_a}.lowerAscii() + strings.quote({text_b})",
    ]
)
QUESTION = st.sampled_from(
    [
        "{a} == {b}",
        "{a} != {a}",
        "{a} in [{b}, {c}, {b}]",
        "[{a}, {b}, {c}].indexOf({c}) > 0",
        "sets.contains([{a}, {b}, {c}], [{c}, {b}])",
        "sets.equivalent([{a}, {b}], [{b}, {a}])",
        "sets.intersects([{a}], [{b}, {c}])",
        "lists.range(99).all(x, lists.range(99).exists(y, {a} == {b} || x == y))",
        "[dyn({a}), dyn({b})].min() == {a}",
        "[dyn({a}), dyn({b})].isSorted()",
        "{text_a}.matches({text_b} + '(x?){{90}}')",
        "{text_a}.lastIndexOf({text_b}) > 0",
        "{{1: 2}}[dyn({a})] == 1",
        "[1][dyn({a})] == 1",
    ]
)
BEGINNING = st.sampled_from(["[0, 1, 2, 3]", "'abab'", "''", f"'{'a' * 300}'", "[]", "{1: 'a'}"])
NAMES = tuple(f"v{index}" for index in range(20))


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Draw an expression in which each value is made of earlier ones."""
    made = draw(st.lists(BEGINNING, min_size=2, max_size=3))
    before = [f"cel.bind({name}, dyn({text}), " for name, text in zip(NAMES, made, strict=False)]
    for step in draw(st.lists(STEP, min_size=3, max_size=9)):
        value = step.format(**draw(some_of(NAMES[: len(before)])))
        before.append(f"cel.bind({NAMES[len(before)]}, dyn({value}), ")
    question = draw(QUESTION).format(**draw(some_of(NAMES[max(len(before) - 2, 0) : len(before)])))
    return "".join(before) + question + ")" * len(before)


def some_of(names: Sequence[str]) -> st.SearchStrategy[dict[str, str]]:
    """Draw the values of ``a``, ``b`` and ``c`` and their texts, mostly later ones."""
    one = st.sampled_from((*names, names[-1], names[-1]))
    return st.tuples(one, one, one).map(
        lambda drawn: {
            **dict(zip("abc", drawn, strict=True)),
            **{f"text_{key}": text_of(name) for key, name in zip("abc", drawn, strict=True)},
        }
    )


def text_of(name: str) -> str:
    """Return an expression for a text: the value, if it is one."""
    return f"(type({name}) == string ? string({name}) : 'abc')"


def calls_of(program: CelProgram, activation: Activation) -> int:
    """Return how many functions an evaluation calls: a measure of time that no load changes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        with suppress(CelError, RecursionError, ArithmeticError):
            program.code(activation)
    finally:
        sys.setprofile(before)
    return calls


@settings(max_examples=examples(25), deadline=None)
@given(text=expressions())
def test_cost_bounds_calls_and_memory(text: str) -> None:
    """The more an expression does, the more it pays; and it ends when it can pay no more."""
    try:
        program = ENVIRONMENT.compile(text)
    except InputError:
        return
    activation = Activation({}, STEPS)
    calls = calls_of(program, activation)
    spent = min(STEPS, STEPS - activation.steps)

    assert calls <= CALLS_PER_STEP * spent + FIXED_CALLS

    tracemalloc.start()
    try:
        with suppress(CelError):
            program.evaluate({}, STEPS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= BYTES_PER_STEP * spent + FIXED_BYTES


def nested(levels: int, question: str) -> str:
    """Return a question about lists of lists …, eight in each."""
    names = [f"v{level}" for level in range(levels)]
    inner = ["0", *names[:-1]]
    binds = [f"cel.bind({n}, [{', '.join([i] * 8)}], " for n, i in zip(names, inner, strict=True)]
    return "".join(binds) + question.format(names[-1]) + ")" * levels


@pytest.mark.parametrize(
    "text",
    [
        nested(9, "{0} == {0}"),
        nested(9, "{0} in [{0}]"),
        nested(9, "{{1: {0}}} == {{1: {0}}}"),
        nested(9, "optional.of({0}) == optional.of({0})"),
        nested(9, "[{0}, {0}].distinct().size() == 1"),
        nested(9, "dyn({0}).flatten(20).size() == 1"),
        "sets.contains(lists.range(1500), lists.range(1500))",
        f"lists.range(90).all(x, lists.range(90).all(y, [{', '.join(['0'] * 900)}][0] == 0))",
        f"lists.range(90).all(x, lists.range(90).all(y, {' && '.join(['true'] * 900)}))",
        "lists.range(90).map(x, lists.range(90).map(y, {1: 2, 3: 4, 5: 6, 7: 8})).size() > 0",
        f"lists.range(90).all(x, '{'a' * 900}'.matches('(a?){{200}}b') == false)",
        f"'{'a' * 900}'.findAll('a(.*b)?').size() > 0",
        f"lists.range(90).all(x, '{'a' * 900}'.replace('a', '{'b' * 90}') != '')",
        r"lists.range(90).exists(x, 'a'.matches(string(x) + '\\pL{90}') || false)",
    ],
)
def test_costly_expression_is_refused(text: str) -> None:
    """An expression is refused even if another operand would hide the error."""
    for whole in (text, f"({text}) || true", f"[1, 2].exists(z, ({text}) || z == 2)"):
        with pytest.raises(CelCostError, match="actual cost limit exceeded"):
            ENVIRONMENT.compile(whole).evaluate({}, STEPS)


@pytest.mark.parametrize("question", ["{{1: 2}}[dyn({0})] == 1", "[1][dyn({0})] == 1"])
def test_a_message_about_a_key_is_short(question: str) -> None:
    """The message names the kind of a key that is a list."""
    with pytest.raises(CelError) as raised:
        ENVIRONMENT.compile(nested(9, question)).evaluate({}, STEPS)
    assert len(str(raised.value)) < 100


def test_comparison_of_deeply_nested_values_is_an_error() -> None:
    """The evaluating process survives the comparison."""
    text = "v0 == v0"
    for _ in range(30):
        text = f"cel.bind(v0, {'[' * 9}v0{']' * 9}, {text})"
    with suppress(CelError, InputError):
        ENVIRONMENT.compile(f"cel.bind(v0, [0], {text})").evaluate({}, 20_000)


def test_processor_time_is_bounded_where_cost_is_not() -> None:
    """The bound is looked at while steps are spent, long before a large budget ends."""
    text = "lists.range(999).all(x, lists.range(999).all(y, x + y >= 0))"
    activation = Activation({}, 1_000_000, longest_s=0.0)

    with pytest.raises(CelCostError, match="actual cost limit exceeded"):
        ENVIRONMENT.compile(text).code(activation)
