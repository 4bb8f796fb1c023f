"""The text of a program is edited: views are added, and a view is cut out."""

from __future__ import annotations

import pytest

from circuits import (
    DatalogError,
    ProgramChangeError,
    SqlError,
    UnknownViewError,
    compile_datalog,
    compile_sql,
    udf,
)
from circuits.circuit_spec import CircuitSpec
from circuits.program_edits import add_views, remove_view

E = {"e": "src bigint, dst bigint"}
TWO = "CREATE VIEW a AS SELECT src FROM e; -- one\nCREATE VIEW b AS SELECT dst FROM e"


def spec(text: str, **options) -> CircuitSpec:
    return compile_sql(text, E, **options).spec


def test_added_views_follow_the_text_and_may_read_its_views():
    edited = add_views(
        spec(TWO), "CREATE VIEW c AS SELECT * FROM b; CREATE TEMP VIEW d AS SELECT 1 AS x"
    )
    assert list(edited.plans) == ["a", "b", "c", "d"]
    assert edited.outputs == ("a", "b", "c")
    assert edited.source.text.startswith(TWO + ";\n")
    assert edited.fingerprint == spec(edited.source.text).fingerprint


def test_the_options_of_the_program_stay():
    before = spec(TWO, outputs=["a"], materialize=["e", "b"], formula="flipped")
    edited = add_views(before, "SELECT 1 AS x", name="my view", materialize=["my view"])
    assert edited.outputs == ("a", "my view")
    assert edited.materialized == ("e", "b", "my view")
    assert edited.options.formula == before.options.formula


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "postgres"])
def test_a_plain_select_becomes_a_view_of_its_name(dialect):
    before = compile_sql("-- all\nSELECT src FROM e -- end", E, name="a b", dialect=dialect).spec
    edited = add_views(before, "CREATE VIEW c AS SELECT count(*) AS n FROM e")
    assert list(edited.plans) == ["a b", "c"]
    assert edited.source.text.startswith("-- all\nCREATE VIEW ")
    assert list(remove_view(edited, "c").plans) == ["a b"]
    assert list(remove_view(edited, "a b").plans) == ["c"]


def test_a_comment_at_the_end_of_the_text_does_not_hide_the_new_view():
    for text in (TWO + " -- end", TWO + "; -- end", TWO + ";;\n"):
        assert "c" in add_views(spec(text), "CREATE VIEW c AS SELECT 1 AS x").plans


def test_rules_are_added_and_removed():
    circuit = compile_datalog("a(x) :- e(x, _) % end", E)
    edited = add_views(circuit.spec, "b(x) :- a(x), e(_, x).")
    edited = add_views(edited, "c(x) :- b(x). c(x) :- e(x, x)")
    assert list(edited.plans) == ["a", "b", "c"]
    with pytest.raises(ProgramChangeError, match="'a' is read by 'b'"):
        remove_view(edited, "a")
    assert list(remove_view(edited, "c").plans) == ["a", "b"]
    with pytest.raises(ProgramChangeError, match="would change view a"):
        add_views(circuit.spec, "a(x) :- e(_, x)")
    with pytest.raises(DatalogError):
        add_views(circuit.spec, "b(x) :- nothing(x)")


def test_user_functions_are_added_with_the_views_that_call_them():
    twice = udf(lambda x: x * 2, parameters=["bigint"], returns="bigint")
    edited = add_views(
        spec(TWO), "CREATE VIEW c AS SELECT twice(src) AS t FROM e", functions={"twice": twice}
    )
    assert edited.user_signatures == {"twice": twice.signature}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW c AS SELECT nothing FROM e", "lines count from the beginning"),
        ("CREATE OR REPLACE VIEW a AS SELECT dst FROM e", "'?a'?"),
    ],
)
def test_a_wrong_text_is_an_error_of_the_text(text, message):
    with pytest.raises((SqlError, ProgramChangeError)) as error:
        add_views(spec(TWO), text)
    assert error.match(message) or any(message in note for note in error.value.__notes__)


def test_an_added_text_must_add_a_view_and_no_input():
    with pytest.raises(ProgramChangeError, match="declares f: an input cannot be added"):
        add_views(spec(TWO), "CREATE TABLE f (x INT); CREATE VIEW c AS SELECT x FROM f")
    with pytest.raises(ProgramChangeError, match="materialize: 'a' is not a new view"):
        add_views(spec(TWO), "CREATE VIEW c AS SELECT 1 AS x", materialize=["a"])
    with pytest.raises(ProgramChangeError, match="leave name out"):
        add_views(spec(TWO), "CREATE VIEW c AS SELECT 1 AS x", name="d")


@pytest.mark.parametrize(
    "text",
    [
        TWO,
        "CREATE TABLE a (x BIGINT); INSERT INTO a SELECT src FROM e; "
        "CREATE VIEW b AS SELECT dst FROM e;",
        "CREATE VIEW b AS SELECT dst FROM e; CREATE VIEW A(x) AS SELECT src FROM e;",
        'CREATE VIEW "b" AS SELECT dst AS a FROM e; CREATE VIEW "a" AS SELECT src FROM e AS b',
        "CREATE VIEW b AS SELECT dst FROM e a; SELECT src FROM e -- end",
    ],
)
def test_a_view_is_cut_out_of_the_text(text):
    before = spec(text, name="a")
    (name,) = before.plans.keys() - {"b"}
    edited = remove_view(before, name)
    assert list(edited.plans) == ["b"]
    assert edited.fingerprints["view b"] == before.fingerprints["view b"]


def test_a_view_that_is_needed_is_not_removed():
    with pytest.raises(ProgramChangeError, match="read by 'c'"):
        remove_view(spec(TWO + "; CREATE VIEW c AS SELECT * FROM b"), "b")
    with pytest.raises(ProgramChangeError, match="the only view"):
        remove_view(spec("SELECT 1 AS x"), "view")
    with pytest.raises(UnknownViewError, match="views are a, b"):
        remove_view(spec(TWO), "c")
    with pytest.raises(ProgramChangeError, match="built from plans"):
        remove_view(CircuitSpec(spec(TWO).plans, spec(TWO).schemas), "a")


NAMES_LIKE_KEYWORDS = ["view", "create", "as", "select", "if", "recursive", "or", "values"]


@pytest.mark.parametrize("name", NAMES_LIKE_KEYWORDS)
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_a_view_named_like_a_keyword_is_removed_and_no_other_one(name, dialect):
    quoted = f'"{name}"' if dialect == "duckdb" else f"`{name}`"
    first = "CREATE OR REPLACE VIEW a AS SELECT src AS x FROM e;\n"
    text = (
        f"{first}CREATE VIEW {quoted} AS SELECT dst AS x FROM e;\nCREATE VIEW b AS SELECT x FROM a"
    )
    edited = remove_view(compile_sql(text, E, dialect=dialect).spec, name)
    assert list(edited.plans) == ["a", "b"]
    assert edited.source.text == f"{first}CREATE VIEW b AS SELECT x FROM a"
    assert list(remove_view(compile_sql(text, E, dialect=dialect).spec, "b").plans) == ["a", name]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("CREATE VIEW s.v AS SELECT src FROM e", "s.v"),
        ("CREATE VIEW main.v AS SELECT src FROM e", "v"),
        ("CREATE VIEW v (a) AS SELECT src FROM e", "v"),
        ("CREATE VIEW IF NOT EXISTS V AS VALUES (1)", "V"),
        ("INSERT INTO v SELECT src FROM e", "v"),
        ("DECLARE RECURSIVE VIEW v (a BIGINT); CREATE VIEW v AS SELECT src AS a FROM e", "v"),
        ("/* view */ CREATE VIEW /* b */ v AS SELECT src AS a FROM e", "v"),
    ],
)
def test_the_statements_of_a_view_are_removed_in_every_form(statement, name):
    rest = "CREATE VIEW b AS SELECT dst AS v FROM e"
    edited = remove_view(compile_sql(f"{rest};\n{statement};", E).spec, name)
    assert list(edited.plans) == ["b"]
    assert edited.source.text.removesuffix("/* view */").rstrip() == f"{rest};"


def test_rules_name_their_views_themselves():
    before = compile_datalog("a(x) :- e(x, _).", E).spec
    with pytest.raises(ProgramChangeError, match="name='c' is for a SELECT: rules of Datalog"):
        add_views(before, "b(x) :- a(x).", name="c")
