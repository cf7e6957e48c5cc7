"""No secret is readable in an anonymous recording, wherever it stood."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import inspect
from tests.examples import examples

from koordinator.api.annotations import codec as codecs
from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta
from koordinator.foundation.clock import Duration
from koordinator.simulator.recorder import RECORDED
from koordinator.simulator.recording import Anonymiser
from koordinator.simulator.recording.vocabulary import NUMERIC, annotation_types, vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CORE = st.text(LETTERS, min_size=6, max_size=10).map("zqj{}".format)  # no word has that
DIGITS = st.integers(10**12, 10**17).map(str)
SECRETS = st.one_of(
    CORE,
    DIGITS,
    CORE.map(str.capitalize),
    CORE.map(str.upper),
    st.tuples(*[st.integers(100, 255)] * 4).map(lambda it: ".".join(map(str, it))),
    st.tuples(*[st.integers(100, 255)] * 4).map(lambda it: ".".join(map(str, it)) + "/24"),
    CORE.map(lambda it: f"{it}.example.com/{it}chip"),
    CORE.map(lambda it: f"{it}.k8s.io/x"),
    CORE.map(lambda it: f"{it}.koordinator.sh/{it}"),
    CORE.map(lambda it: f"attachable-volumes-csi-{it}"),
    CORE.map(lambda it: f"registry.example/{it}:1@sha256:{it}"),
    CORE.map(lambda it: f"--password={it} \N{LATIN SMALL LETTER U WITH DIAERESIS}\n\x1b{it}"),
    st.text("пароль密码üß", min_size=8, max_size=9),
    CORE.map(lambda it: json.dumps({it: [it]})),
    CORE.map(lambda it: f"a,{it}__{it}"),
)
SHORT = 6  # letters in a row that no text has by chance


class Filler:
    """Makes an object whose every text is a secret of its own."""

    def __init__(self, secret: Callable[[], str]) -> None:
        self.secret = secret
        self.annotations: dict[str, str] = {}

    def value(self, kind: inspect.Type) -> Any:  # noqa: PLR0911 -- one for each form
        match kind:
            case inspect.StrType(pattern=pattern) if pattern:
                return "Reason"
            case inspect.Metadata(type=inner):
                return self.value(inner)
            case inspect.StructType():
                tree = {field.encode_name: self.value(field.type) for field in kind.fields}
                if kind.cls is ObjectMeta:
                    tree["annotations"] = self.every_annotation()
                    tree["labels"] = {self.secret(): self.secret()}
                    tree["labels"] |= {key: self.secret() for key in vocabulary() if "/" in key}
                return tree | {self.secret(): {self.secret(): self.secret()}}
            case inspect.DictType():
                return {self.key(kind.key_type): self.value(kind.value_type)}
            case inspect.UnionType(types=types):
                return self.value(next(it for it in types if not isinstance(it, inspect.NoneType)))
            case inspect.StrType():
                return self.secret()
            case inspect.AnyType() | inspect.RawType():
                return {self.secret(): [self.secret(), {self.secret(): 1}]}
            case _:
                return self.plain(kind)

    def plain(self, kind: inspect.Type) -> Any:  # noqa: PLR0911 -- one case per type
        match kind:
            case inspect.IntType() | inspect.FloatType():
                return 1
            case inspect.BoolType():
                return True
            case inspect.LiteralType(values=values):
                return values[0]
            case inspect.EnumType(cls=cls):
                return next(iter(cls)).value
            case inspect.DateTimeType():
                return "2026-01-01T00:00:00Z"
            case inspect.CustomType(cls=cls):
                return "1s" if cls is Duration else "1"
            case inspect.TupleType(item_types=types):
                return [self.value(it) for it in types]
            case _:
                return [self.value(kind.item_type)]  # type: ignore[attr-defined]  # all others

    def key(self, kind: inspect.Type) -> str:
        return self.secret() if isinstance(kind, inspect.StrType) else str(self.value(kind))

    def every_annotation(self) -> dict[str, str]:
        if not self.annotations:  # once: below is more metadata
            self.annotations = {self.secret(): self.secret()}
            for key, kind in annotation_types().items():
                content = (
                    self.secret()
                    if kind is str
                    else json.dumps(self.value(inspect.type_info(kind)), ensure_ascii=False)
                )
                self.annotations[key] = content
        return self.annotations


def filled(kind: type[KubeObject], secret: Callable[[], str]) -> JsonObject:
    tree: JsonObject = Filler(secret).value(inspect.type_info(kind))
    return tree | {"apiVersion": kind.API_VERSION, "kind": kind.KIND}


def readable(text: str, secrets: list[str]) -> list[str]:
    """Return the secrets whose parts are in a text, as they are or as JSON spells them."""
    spelt = [text, text.encode().decode("unicode_escape", errors="ignore")]
    return [
        secret
        for secret in secrets
        for part in parts(secret)
        if any(part in each for each in spelt)
    ]


def parts(secret: str) -> Iterator[str]:
    """Yield what makes a secret one."""
    run = "".join(char if char.isalnum() else " " for char in secret)
    yield from (it for it in run.split() if len(it) >= SHORT and it not in KNOWN_PARTS)


KNOWN_PARTS = {"koordinator", "attachable", "volumes", "example", "registry", "sha256", "password"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.KIND)
@settings(max_examples=examples(3), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(SECRETS, min_size=7, max_size=7, unique=True), st.binary(min_size=16, max_size=16))
def test_no_secret_is_readable(
    kind: type[KubeObject], given_secrets: list[str], key: bytes
) -> None:
    """Every text field, key of a map, annotation, label and unknown field of every kind."""
    drawn = itertools.cycle(given_secrets)
    obj = decode_object(filled(kind, lambda: next(drawn)))
    shown = Anonymiser(key).manifest(to_manifest(obj))

    text = msgspec.json.encode(shown).decode()
    assert readable(text, given_secrets) == []
    assert decode_object(shown).KIND == kind.KIND


@settings(max_examples=examples(20), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(secrets=st.lists(SECRETS, min_size=4, max_size=4))
def test_a_configuration_is_anonymized(secrets: list[str]) -> None:
    """Numbers, durations and the names of plugins stay."""
    one, two, three, four = secrets
    tree = {
        "profiles": [
            {
                "schedulerName": one,
                "pluginConfig": [
                    {"name": "LoadAware", "args": {"resourceWeights": {two: 3}, three: [four]}}
                ],
            }
        ],
        "podInitialBackoffSeconds": 1,
        "leaderElection": {"leaseDuration": "15s"},
    }
    shown = Anonymiser(b"key", ["LoadAware"]).configuration(tree)

    assert readable(json.dumps(shown, ensure_ascii=False), secrets) == []
    assert shown["leaderElection"] == {"leaseDuration": "15s"}
    assert shown["profiles"][0]["pluginConfig"][0]["name"] == "LoadAware"


def test_key_determines_the_pseudonyms() -> None:
    """One secret gives equal names within a recording, and other names in the next."""
    one, other = Anonymiser(b"one"), Anonymiser(b"other")

    assert one.name("payroll") == one.name("payroll") != other.name("payroll")
    assert one.name("a/payroll") == f"{one.name('a')}/{one.name('payroll')}"
    assert one.pod_name("worker-12") == f"{one.name('worker')}-12"


@pytest.mark.parametrize(
    "word",
    [
        *("cpu", "nvidia.com/gpu", "hugepages-2Mi", "kubernetes.io/batch-cpu", "NoSchedule"),
        *("kubernetes.io/hostname", "node.kubernetes.io/not-ready", "default-scheduler", "true"),
        *("ReplicaSet", "koord-prod", "In", "koordinator-root-quota", "Ready", "LSR", "gpu"),
    ],
)
def test_words_of_kubernetes_and_koordinator_are_kept(word: str) -> None:
    """Keys and values that the platform defines are no names of users."""
    assert Anonymiser(b"key").name(word) == word


def test_pseudonyms_are_names() -> None:
    """Where a name has to be one: labels of DNS, values of labels, resources of vendors."""
    one = Anonymiser(b"key")

    assert one.name("acme.example.com/chip").count("/") == 1
    assert one.name("team.k8s.io/x").partition("/")[0].endswith(".k8s.io")
    assert all(
        len(one.name(it)) <= 63 and one.name(it).isalnum() for it in ("A b", "密码", "x" * 99)
    )


def test_every_codec_is_known() -> None:
    """An annotation that gets a codec is not forgotten."""
    assert codecs.AnnotationCodec is AnnotationCodec
    assert len(annotation_types()) > 100
    assert "scheduling.koordinator.sh/device-allocated" in annotation_types()
    assert vocabulary() > NUMERIC
