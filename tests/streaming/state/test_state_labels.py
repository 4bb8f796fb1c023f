"""Labels of the state: every part of a circuit's state names its operator and its views."""

import pyarrow as pa

from circuits import compile_sql
from streaming.state.state_labels import describe_state, state_labels
from tests.support.tables import EDGE

VIEWS = """
    CREATE VIEW best AS SELECT src, max(dst) AS m FROM e GROUP BY src;
    CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src
"""


def test_all_state_of_a_circuit_has_a_label_with_its_views():
    circuit = compile_sql(VIEWS, {"e": EDGE}, materialize=["best"])
    circuit.step({"e": pa.table({"src": [1, 2], "dst": [2, 3]})})
    labels = state_labels(circuit)
    trace_labels = [labels[name] for name in circuit.committed.traces]
    assert {view for label in trace_labels for view in label.views} == {"best", "paths"}
    assert "materialized view best" in {label.text for label in trace_labels}
    assert not any("#" in label.text.partition(" ")[0] for label in trace_labels)


def test_several_traces_of_one_operator_have_different_labels():
    circuit = compile_sql(VIEWS, {"e": EDGE})
    labels = state_labels(circuit)
    traces = [label.text for name, label in labels.items() if name.startswith("operator ")]
    assert len(traces) == len(set(traces))


def test_descriptions_of_state_are_unique_and_name_the_operator():
    circuit = compile_sql(VIEWS, {"e": EDGE}, materialize=["best"])
    names = [*state_labels(circuit), "text", "stage 1 operator #00 0 [1,0]"]
    descriptions = [describe_state(name, state_labels(circuit)) for name in names]
    assert len(set(descriptions)) == len(names)
    assert descriptions[-2:] == names[-2:]
    assert any(name.startswith("aggregate max(dst) by src #") for name in descriptions)
