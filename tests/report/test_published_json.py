"""What programs read: each contract as its golden file and its schema have it.

A golden file is what `--json` prints of a sample; the samples are small enough to follow by hand.
"""

import json
from dataclasses import replace

import jsonschema
import pytest
import sample_analysis
import sample_check
from contract_schemas import SCHEMAS, TYPES, schema_text
from contracts_page import PAGE, with_tables
from golden_files import is_golden
from hypothesis import given
from layer_models import model
from op_graphs import graphs
from sample_break_even import FOUND, with_break_even
from sample_calibration import IN_ONE_PROCESS, W0, W1, WORKERS, copy, summary_of
from sample_hosts import summary_of_hosts
from summary_graphs import op, traced_as_tiny, training_step

from placement_advisor.files.contract import json_text, plain
from placement_advisor.graph.graph_summary import summarize
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.results.analysis import Analysis
from placement_advisor.results.check import Check
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.machine import Calibration
from placement_advisor.results.steps import Trace
from placement_advisor.tf.answers import LeftOut

VALIDATORS = {name: jsonschema.Draft202012Validator(load_schema(name)) for name in TYPES}


def traced(graph, **changes):
    of = traced_as_tiny(graph)
    files = {"model_path": "tiny.py", "graph_file": "tiny.graph.json.gz"}
    return Trace.of(replace(of, **changes), summarize(graph), **files)


# Two towers, one of them of three alike layers, and a residual unit behind them.
STRUCTURED = model(
    "in1 -> a1", "a1 -> a2", "a2 -> a3", "in2 -> b", "a3 b -> dot", "dot -> f", "f dot -> add"
)
PUBLISHED = {
    "analysis_sample": Analysis.of(with_break_even()),
    "analysis_elsewhere": Analysis.of(sample_analysis.elsewhere()),
    "calibration_sample": Calibration.of(summary_of(WORKERS)),
    "calibration_hosts": Calibration.of(summary_of_hosts()),
    "check_sample": Check.of(sample_check.sample()),
    "trace_sample": traced(training_step()),
    "trace_structured": traced(STRUCTURED),
}


def told(of):
    """Return a contract as it is read, which its schema allows."""
    content = plain(of)
    VALIDATORS[type(of).__name__.lower()].validate(content)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    return content


def analysis_json(of):
    return told(Analysis.of(of))


@pytest.mark.parametrize("name", PUBLISHED)
def test_samples_are_the_golden_ones_and_fit_their_schemas(name):
    told(PUBLISHED[name])
    assert is_golden(json_text(PUBLISHED[name]), name)


def test_what_was_not_measured_or_is_not_known_is_null_or_absent(analysis):
    _, towers = analysis_json(sample_analysis.not_applicable())["candidates"]
    assert towers["placement_file"] is towers["predicted"] is towers["measured"] is None
    assert towers["failure"]["kind"] == "not-applicable"
    towers = analysis.candidates[1]
    bare = replace(towers, measured=replace(towers.measured, profile=None, profile_run=None))
    cut = replace(towers, measured=replace(towers.measured, rounds=()), comparison=None)
    bare_row, cut_row = analysis_json(replace(analysis, candidates=(bare, cut)))["candidates"]
    for field in ("compute_ns", "transfer_ns", "transfers", "profiler_overhead", "profile"):
        assert bare_row["measured"][field] is None
    assert cut_row["measured"] is None
    finding = replace(analysis.findings[0], saving=None, where={})
    (unknown,) = analysis_json(replace(analysis, findings=(finding,)))["findings"]
    assert not {name for name in unknown if name.startswith("saving")}
    found = replace(FOUND, corrections={"towers": 1.26, "alternating": 1.1}, batch=None)
    content = analysis_json(replace(with_break_even(), break_even=found, input_timing=None))
    assert content["break_even"]["corrections"] == {"towers": 1.26, "alternating": 1.1}
    assert content["break_even"]["batch"] is content["input"] is None
    bare = told(Calibration.of(replace(summary_of(IN_ONE_PROCESS), kept_in=None)))
    for link in bare["links"]:
        assert link["sender"] is link["receiver"] is None
        assert link["copies"][0]["send_ns"] is link["copies"][0]["receive_ns"] is None
    assert bare["kept_in"] is bare["cluster_file"] is None
    ends = (W0, W1)
    noisy = replace(
        WORKERS,
        links=WORKERS.links | {ends: (copy(500, -40), *WORKERS.links[ends])},
        both_ways={ends: replace(WORKERS.both_ways[ends], both_ways_ns=0)},
    )
    content = told(Calibration.of(summary_of(noisy)))
    first = content["links"][0]["copies"][0]
    assert (first["copy_ns"], first["residual"]) == (-40, None)
    assert content["both_ways"][0]["ratio"] is None


def test_a_trace_says_what_is_left_out_or_not_there():
    left_out = LeftOut(jit_compile=True, steps_per_call=4, summaries=2)
    content = told(traced(training_step(), left_out=left_out))
    assert content["model"]["left_out"] == list(left_out.told())
    empty = told(traced(OpGraph([], []), batch_size=None, mode="infer"))
    assert empty["model"]["batch_size"] is empty["flops_known_bytes_share"] is None
    assert empty["flops"] == {"amount": 0, "parts": 0, "unknown": 0}
    (choice,) = told(traced(OpGraph([op("choice", "StatelessIf", flops=10)], [])))["control_flow"]
    assert choice["trips"] is choice["layer"] is choice["bytes_accessed_share"] is None


@given(graphs())
def test_a_trace_of_any_step_fits_its_schema(graph):
    told(traced(graph))


@pytest.mark.parametrize(
    "result",
    [
        sample_check.check(),
        sample_check.check(sample_check.failed(before=None, difference=None)),
        sample_check.check(sample_check.inconclusive(), strict=True),
        sample_check.check(sample_check.passed(), sample_check.could_not_run()),
    ],
)
def test_any_check_fits_its_schema_and_has_its_exit_code(result):
    assert told(Check.of(result))["exit_code"] == result.exit_code


@given(sample_check.names)
def test_names_in_a_check_come_back_as_they_were(name):
    content = told(Check.of(sample_check.hostile(name)))
    assert content["results"][0]["problems"][0]["what"] == name


@pytest.mark.parametrize("name", TYPES)
def test_schemas_are_those_of_the_types(name):
    jsonschema.Draft202012Validator.check_schema(load_schema(name))
    kept = SCHEMAS / f"{name}.schema.json"
    assert kept.read_text(encoding="utf-8") == schema_text(name), "run `make docs`"


def test_the_tables_of_the_page_are_those_of_the_types():
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run `make docs`"
    with pytest.raises(ValueError, match="no place for profile"):
        with_tables(text.replace("<!-- fields of profile -->", ""))
