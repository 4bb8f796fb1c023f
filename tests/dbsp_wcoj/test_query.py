"""The text of queries, the syntax tree, and the errors of both."""

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbsp_wcoj.errors import ArityError, QuerySyntaxError, UnsafeVariableError
from dbsp_wcoj.query import Atom, Comparison, Constant, Query, Variable

A, B, C = Variable("a"), Variable("b"), Variable("c")
TOKENS = ["q", "e", "r/to", "$in0", "a", "?b", "?last-name", "_", "_1", "0", "-7", "'x'", '"y"']
SIGNS = ["(", "(", ")", ")", ",", ",", ".", ":-", "<", "<=", ">", ">=", "=", "==", "!=", "\n"]
NAMES = st.sampled_from(["a", "b", "c", "_1", "_2", "Long_name9", "last-name"])
CONSTANTS = st.one_of(st.integers(), st.text())


@st.composite
def queries(draw):
    """Draw any query that a text can express."""
    terms = st.one_of(NAMES.map(Variable), CONSTANTS.map(Constant))
    arities = {"e": 2, "r/to": 1, "x.y-z_0": 3, "$in0": 0}
    relations = draw(st.lists(st.sampled_from(sorted(arities)), min_size=1, max_size=4))
    body = tuple(Atom(r, tuple(draw(terms) for _ in range(arities[r]))) for r in relations)
    bound = sorted({name for atom in body for name in atom.variables})
    sides = st.one_of(
        CONSTANTS.map(Constant), *([st.sampled_from(bound).map(Variable)] if bound else [])
    )
    operators = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    comparisons = draw(st.lists(st.builds(Comparison, sides, operators, sides), max_size=2))
    head = draw(st.lists(st.sampled_from(bound), max_size=3)) if bound else []
    return Query("q", tuple(head), body, tuple(comparisons))


def test_a_triangle_is_read_as_three_atoms():
    query = Query.parse("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)")

    assert query == Query(
        "tri", ("a", "b", "c"), (Atom("e", (A, B)), Atom("e", (B, C)), Atom("e", (A, C)))
    )


def test_white_space_question_marks_and_the_last_dot_change_nothing():
    plain = Query.parse("tri(a, b) :- e(a, b), e(b, a), a < b")

    assert Query.parse("tri ( ?a,?b):-\n\te(?a,b)\n,e( b ,a), a<b .\n") == plain


def test_comparisons_and_atoms_may_be_in_any_order():
    query = Query.parse("q() :- 3 >= a, e(a, b), a != b, f(b), b = 'x', a == 1")

    assert [str(comparison) for comparison in query.comparisons] == [
        "3 >= a",
        "a != b",
        'b == "x"',
        "a == 1",
    ]
    assert [atom.relation for atom in query.body] == ["e", "f"]


def test_each_underscore_is_a_variable_of_its_own():
    query = Query.parse("q(a) :- e(a, _), f(_, _)")

    assert query.variables == ("a", "_1", "_2", "_3")


def test_the_variable_of_an_underscore_has_an_unused_name():
    query = Query.parse("q(_1) :- e(_, _1), f(_2, ?_)")

    assert query.body == (
        Atom("e", (Variable("_3"), Variable("_1"))),
        Atom("f", (Variable("_2"), Variable("_4"))),
    )


def test_constants_are_integers_or_strings_in_either_quote():
    query = Query.parse(r"""q() :- e(-12, 007, "it's", 'a "b"', "\"\\\n\u00e9", '\'')""")

    values = [term.value for term in query.body[0].terms]
    assert values == [-12, 7, "it's", 'a "b"', '"\\\n\u00e9', "'"]


def test_relation_names_may_contain_slashes_dots_and_dashes():
    query = Query.parse(
        "out/q(?last-name) :- g/to(?last-name, b), last-name(b), a.b-c(b), $in0(b)."
    )

    assert list(query.relations) == ["g/to", "last-name", "a.b-c", "$in0"]
    assert query.head == ("last-name",)


def test_variables_and_relations_are_in_order_of_first_occurrence():
    query = Query.parse("q(a) :- r(c, 1, c), e(b, a), r(a, b, 'x')")

    assert query.variables == ("c", "b", "a")
    assert query.relations == {"r": 3, "e": 2}
    assert query.body[0].variables == ("c",)


def test_heads_and_atoms_may_be_empty_and_may_repeat_variables():
    assert Query.parse("n() :- e(a, b)").head == ()
    assert Query.parse("q(a, a) :- e(a, a)").head == ("a", "a")
    assert Query.parse("n() :- flag()").body == (Atom("flag", ()),)


@given(queries())
@example(
    Query(
        "q", (), (Atom("$in0", ()),), (Comparison(Constant("\x00\ud800'\"\\"), "<", Constant(-1)),)
    )
)
def test_the_text_of_a_query_is_parsed_to_the_same_query(query):
    assert Query.parse(str(query)) == query


@given(st.one_of(st.text(), st.lists(st.sampled_from(TOKENS + SIGNS)).map(" ".join)))
@example("q() :- e(" + "9" * 5000 + ")")
@example("q() :- e('\\q')")
@example("q() :- 1 < 2")
def test_text_is_a_query_or_one_of_three_errors(text):
    try:
        query = Query.parse(text)
    except QuerySyntaxError as error:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        assert str(error).startswith(f"line {error.line}, column {error.column}: found ")
        assert str(error).splitlines()[-1].strip() == "^"
    except (ArityError, UnsafeVariableError):
        pass
    else:
        assert Query.parse(str(query)) == query


@pytest.mark.parametrize(
    ("text", "line", "column", "found", "expected"),
    [
        ("", 1, 1, "the end of the text", "a relation name before '('"),
        ("q(a)", 1, 5, "the end of the text", "':-'"),
        ("q(a) := e(a)", 1, 6, "':'", "':-'"),
        ("q(3) :- e(a)", 1, 3, "'3'", "')' or a variable"),
        ("q(a) :-\n e(a,\n   , b)", 3, 4, "','", "a quoted string, a variable or an integer"),
        ("q(a) :- e(a b)", 1, 13, "'b'", "')' or ','"),
        ("q(a) :- e(a),", 1, 14, "the end of the text", "a quoted string, a relation name"),
        ("q(a) :- e(a) f(a)", 1, 14, "'f'", "',', '.' or the end of the query"),
        ("q(a) :- e(a). q(b) :- f(b).", 1, 15, "'q'", "the end of the query"),
        ("q(a) :- e(a), a + 1", 1, 17, "'+'", "one of < <= > >= == !="),
        ("q(a) :- e(a), a < 1.5", 1, 21, "'5'", "the end of the query"),
        ("q(a) :- e(a, 'x)", 1, 14, '"\'"', "a quoted string, a variable or an integer"),
        (r"q(a) :- e(a, 'x\z')", 1, 16, r"escape '\z'", "one of the escapes"),
        ("q() :- 1 < 2", 1, 13, "the end of the text", "a relation name before '('"),
    ],
)
def test_a_syntax_error_says_where_it_is_what_it_found_and_what_it_expected(
    text, line, column, found, expected
):
    with pytest.raises(QuerySyntaxError) as caught:
        Query.parse(text)

    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(
        f"line {line}, column {column}: found {found}, expected {expected}"
    )


def test_the_caret_is_below_the_fault_even_in_a_long_line_with_tabs():
    text = "q() :-\n\t" + "e(a), " * 50 + "e(a;b)"

    with pytest.raises(QuerySyntaxError) as caught:
        Query.parse(text)

    _, excerpt, caret = str(caught.value).splitlines()
    assert excerpt[caret.index("^")] == ";"
    assert len(excerpt) < 80


def test_a_head_variable_that_no_atom_binds_is_unsafe():
    with pytest.raises(
        UnsafeVariableError, match=r"'c' of the head of 'q'.*variables of atoms: a, b"
    ):
        Query.parse("q(a, c) :- e(a, b)")


def test_a_compared_variable_that_no_atom_binds_is_unsafe():
    with pytest.raises(UnsafeVariableError, match=r"'c' of 'a < c'"):
        Query.parse("q(a) :- e(a, b), a < c")


def test_one_relation_with_two_arities_is_an_error():
    with pytest.raises(ArityError, match=r"'e\(a\)' has 1 terms, but 'e' has arity 2"):
        Query.parse("q(a) :- e(a, b), e(a)")


def test_queries_built_in_python_are_checked_in_the_same_way():
    with pytest.raises(QuerySyntaxError, match="0 atoms"):
        Query("q", (), ())
    with pytest.raises(UnsafeVariableError):
        Query("q", ("z",), (Atom("e", (A,)),))
    with pytest.raises(QuerySyntaxError, match="unknown comparison '<>'; use one of < <="):
        Comparison(A, "<>", B)


def test_a_pickled_error_has_its_position_and_notes():
    error = QuerySyntaxError("expected ')'", line=3, column=7)
    error.add_note("in rules.dl")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (QuerySyntaxError, "expected ')'", vars(error))


def test_queries_are_immutable_and_hashable():
    query = Query.parse("q(a) :- e(a, 1), a < 3")

    assert len({query, Query.parse(str(query))}) == 1
    with pytest.raises(FrozenInstanceError):
        query.name = "r"


def test_the_parser_is_not_imported_before_the_first_query_is_read():
    code = "import sys, dbsp_wcoj.query; sys.exit('lark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("text", "shift"), [("+ 10", 10), ("+10", 10), ("-3", -3), ("- 3", -3)])
def test_a_comparison_may_add_an_integer_to_its_right_side(text, shift):
    query = Query.parse(f"q(a) :- e(a, b), a <= b {text}")
    assert query.comparisons == (Comparison(A, "<=", B, shift),)
    assert Query.parse(str(query)) == query


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a < 5 + 1", "does not compare two variables"),
        ("a < a + 1", "does not compare two variables"),
        ("a < b + 9223372036854775808", "it must be from -9223372036854775807"),
        (f"a < b + {'9' * 5000}", "5000 digits"),
    ],
)
def test_a_number_that_cannot_be_added_is_an_error(text, message):
    with pytest.raises(QuerySyntaxError, match=message):
        Query.parse(f"q(a) :- e(a, b), {text}")
