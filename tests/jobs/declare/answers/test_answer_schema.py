"""An answer fits its schema or is an error with path and reason; a schema that cannot hold is
refused when it is declared.
"""

import json
from collections.abc import Callable

import pydantic
import pytest

from jobs.declare.answers.answer_schema import load_schema, schema_check
from jobs.declare.answers.json_text import read_json
from jobs.errors import DeclarationError

SCHEMA = {
    "type": "object",
    "properties": {
        "topic": {"enum": ["price", "other"]},
        "scores": {"type": "array", "items": {"$ref": "#/$defs/score"}},
    },
    "required": ["topic"],
    "$defs": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},
}


class Label(pydantic.BaseModel):
    topic: str
    score: int = pydantic.Field(ge=1, le=5)


def test_a_schema_is_a_dict_a_file_or_a_class_of_pydantic(tmp_path):
    file = tmp_path / "label.json"
    file.write_text(json.dumps(SCHEMA))
    assert load_schema(SCHEMA) == load_schema(str(file)) == load_schema(file) == SCHEMA
    schema_check(load_schema(Label))({"topic": "price", "score": 5})
    with pytest.raises(ValueError, match=r"at \$.score \(maximum\): 6 is greater than"):
        schema_check(load_schema(Label))({"topic": "price", "score": 6})


def test_a_part_of_a_schema_may_be_true_or_false():
    check = schema_check(load_schema({"properties": {"a": True}, "additionalProperties": False}))
    check({"a": [1]})
    with pytest.raises(ValueError, match=r"at \$ \(additionalProperties\): .*'b' was unexpected"):
        check({"a": 1, "b": 2})


def test_multipleof_judges_only_numbers():
    check = schema_check(load_schema({"multipleOf": 0.5}))
    check("half")
    with pytest.raises(ValueError, match=r"multiple of 0\.5"):
        check(0.7)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"topic": "price", "scores": [1, 2.0, 5]}, None),
        ({"topic": "dear"}, r"at \$.topic \(enum\): 'dear' is not one of"),
        ({"scores": [1]}, r"at \$ \(required\): 'topic' is a required property"),
        ({"topic": "price", "scores": [1, 9]}, r"at \$.scores\[1\] \(maximum\): 9 is greater"),
        ({"topic": "price", "scores": ["1"]}, r"at \$.scores\[0\] \(type\): '1' is not of type"),
        ({"topic": "price", "scores": [True]}, r"at \$.scores\[0\] \(type\): True is not of type"),
        ([], r"at \$ \(type\): \[\] is not of type 'object'"),
    ],
)
def test_an_answer_that_does_not_fit_its_schema_is_an_error_with_path_and_reason(answer, sentence):
    check = schema_check(SCHEMA)
    if sentence is None:
        check(answer)
        return
    with pytest.raises(ValueError, match=sentence):
        check(answer)


@pytest.mark.parametrize("dialect", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
@pytest.mark.parametrize(
    ("unit", "value", "fits"),
    [
        (0.01, "4.02", True),
        (0.01, "4.025", False),
        (0.1, "1.2", True),
        (0.1, "12345678901234567.85", False),
        (1e-8, "10000.0", True),
        (0.5, f"1{'0' * 400}", True),
        (3, "9.0", True),
        (3, "10", False),
    ],
)
def test_a_number_is_a_multiple_by_its_decimal_digits(unit, value, fits, dialect):
    rules = {"sum": {"multipleOf": unit}, "less": {"$ref": "#"}}
    check = schema_check(dialect | {"properties": rules})
    for text in (f'{{"sum": {value}}}', f'{{"less": {{"sum": {value}}}}}'):
        if fits:
            check(read_json(text))
        else:
            with pytest.raises(ValueError, match=f"{value} is not a multiple of {unit}"):
                check(read_json(text))


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("^[A-Z]{2}$", "DE", "DE\n"),
        (r"^\d{2}$", "17", "\u0661\u0667"),
        (r"^\D$", "\u0661", "1"),
        (r"^[\d.]+$", "1.7", "\u0661.7"),
        (r"^\w+$", "ab_1", "caf\u00e9"),
        (r"^\W$", "\u00e9", "e"),
        (r"^[\w$\]-]+$", "a-$]", "\u00e9"),
        (r"^\$\d$", "$5", "5"),
        (r"^\S+$", "\u00e9", "\u00a0"),
        ("^.+$", "a b", "a\u2028b"),
        (r"^[.]\.$", "..", ".a"),
    ],
)
def test_a_pattern_is_read_as_ecma_262_reads_it(pattern, fits, fails):
    check = schema_check(load_schema({"items": {"pattern": pattern}}))
    check([fits, 7])
    with pytest.raises(ValueError, match=r"at \$\[0\] \(pattern\): .* does not match"):
        check([fails])


@pytest.mark.parametrize("closed", ["additionalProperties", "unevaluatedProperties"])
def test_a_pattern_of_names_is_read_as_ecma_262_reads_it(closed):
    inner = {"patternProperties": {r"^\w{2}$": {"type": "integer"}}, closed: False}
    check = schema_check(load_schema({"$ref": "#/$defs/inner", "$defs": {"inner": inner}}))
    check({"DE": 1})
    for name in ("DE\n", "\u0661\u0667"):
        with pytest.raises(ValueError, match=closed):
            check({name: 1})
        schema_check(load_schema({"patternProperties": inner["patternProperties"]}))({name: "x"})


@pytest.mark.parametrize("dialect", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
def test_dependencies_hold_in_every_dialect(dialect):
    rules = {"dependencies": {"total": ["unit"], "unit": {"required": ["place"]}}}
    check = schema_check(load_schema({**dialect, **rules}))
    check({"total": 1, "unit": "EUR", "place": "Bonn"})
    for answer in ({"total": 1}, {"unit": "EUR"}):
        with pytest.raises(ValueError, match="it breaks the schema at"):
            check(answer)


class Undescribed(pydantic.BaseModel):
    act: Callable[[int], int]


DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
OUTSIDE = {"properties": {"x": {"$ref": "#/$defs/a"}}}  # where draft 7 knows no schemas


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (7, "schema is 7; it must be a JSON Schema: a dict, the path"),
        ("none.json", "schema: none.json cannot be read: No such file"),
        ({"type": "text"}, r"schema is not a JSON Schema: \$.type: 'text' is not valid"),
        (
            {"$ref": "https://a.example/b"},
            "'https://a.example/b' is not in this schema; others are",
        ),
        ({"items": {"$ref": "#/$defs/no"}}, "'#/\\$defs/no' is not in this schema"),
        ({"items": {"$dynamicRef": "#no"}}, "dynamicRef '#no' is not in this schema"),
        ({"dependencies": {"a": {"$ref": "#/$defs/no"}}}, "'#/\\$defs/no' is not in this schema"),
        ({"dependencies": {"a": {"items": {"$ref": "b"}}}}, "'b' is not in this schema"),
        ({"$ref": "#"}, "it refers to itself without end"),
        ({"anyOf": [{"type": "null"}, {"$dynamicRef": "#"}]}, "it refers to itself without end"),
        ({"enum": [{1, 2}]}, "schema is not a JSON Schema"),
        (
            {**DRAFT_7, **OUTSIDE, "$defs": {"a": {"items": {"$ref": "#/$defs/no"}}}},
            "'#/\\$defs/no' is not in this schema",
        ),
        ({**DRAFT_7, **OUTSIDE, "$defs": {"a": {"type": "text"}}}, "'text' is not valid"),
        ({**DRAFT_7, **OUTSIDE, "$defs": {"a": [1]}}, "is not of type 'object', 'boolean'"),
        (
            {"$schema": "http://json-schema.org/draft-03/schema#", "extends": {"type": "object"}},
            "draft-03/schema#' is too old; write a schema of draft 4 or newer",
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "items": {"patternProperties": {"(a": {}}},
            },
            r"patternProperties '\(a' is not a regex: missing",
        ),
        ({"$schema": 5}, r"\$.\$schema: 5 is not of type 'string'"),
        (json.loads('{"items":' * 400 + "{}" + "}" * 400), "schema is nested too deep to be check"),
        (Undescribed, "Undescribed.* has no JSON Schema: Cannot generate a JsonSchema for core"),
    ],
)
def test_a_schema_that_cannot_hold_is_refused(declared, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        load_schema(declared)


@pytest.mark.parametrize(
    ("declared", "fits", "fails"),
    [
        ({"enum": [{"$ref": "no"}]}, {"$ref": "no"}, {}),
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "no"}, {"$ref": 1}),
        ({"default": {"$ref": "no"}, "type": "object"}, {}, []),
        ({"dependencies": {"a": ["b"], "c": False}}, {"a": 1, "b": 1}, {"c": 1}),
        ({"$id": "http://a/s", "$ref": "s#/$defs/n", "$defs": {"n": {"type": "null"}}}, None, 1),
        (
            {
                "properties": {
                    "a": {"$id": "b", "$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}}
                }
            },
            {"a": None},
            {"a": 1},
        ),
        ({**DRAFT_7, **OUTSIDE, "$defs": {"a": {"type": "null"}}}, {"x": None}, {"x": 1}),
        (
            {
                "items": {"$dynamicRef": "#n"},
                "$defs": {"n": {"$dynamicAnchor": "n", "type": "null"}},
            },
            [None],
            [1],
        ),
    ],
)
def test_a_schema_may_use_references_as_data_and_by_id(declared, fits, fails):
    check = schema_check(load_schema(declared))
    check(fits)
    with pytest.raises(ValueError, match="it breaks the schema"):
        check(fails)


@pytest.mark.parametrize(
    ("declared", "answer"),
    [
        ({"properties": {"child": {"$ref": "#"}}}, json.loads('{"child":' * 600 + "1" + "}" * 600)),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, {"a": 1}),
    ],
    ids=["deep", "endless"],
)
def test_an_answer_that_cannot_be_checked_is_an_error_of_this_answer(declared, answer):
    check = schema_check(load_schema(declared))
    with pytest.raises(ValueError, match="it cannot be checked against the schema"):
        check(answer)
