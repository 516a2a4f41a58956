"""What a check does ahead of time, and from graph files alone."""

import pytest

from placement_advisor.candidates import references
from placement_advisor.check.check_models import CheckOptions, _compile, check_models
from placement_advisor.check.problems import ProblemCode
from placement_advisor.check.project_files import read_config
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware


@pytest.mark.parametrize("hardware", ["V100", "2xV100-NVLink", "2x(2xT4)-Ethernet100"])
def test_what_is_compiled_ahead_is_placed_and_simulated_on_any_hardware(hardware):
    _compile(read_hardware(hardware), {"auto"})


class Silent:
    def working(self, what, done, total, candidate=""): ...

    def note(self, what): ...


@pytest.mark.parametrize(
    ("hardware", "codes"),
    [
        ("2xV100-NVLink", set()),
        ("GTX1080Ti+GTX1080", {ProblemCode.PLACEMENT_CHANGED, ProblemCode.SLOWER}),
    ],
)
def test_a_whole_step_may_move_to_another_device_if_that_is_as_good(tmp_path, hardware, codes):
    kinds = frozenset({"CPU", "GPU"})
    product = Op(name="product", kind="MatMul", layer="dense", flops=10**11, device_kinds=kinds)
    graph = OpGraph([product], [])
    graph.save(tmp_path / "step.graph.json.gz")
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.advisor]\nhardware = "{hardware}"\n[[tool.advisor.models]]\npath = "step.py"\n'
        'graph = "step.graph.json.gz"\nplacement = "placement.json"\n'
    )
    devices = read_hardware(hardware).device_names()
    for device, update in ((devices[0], True), (devices[1], False)):
        placement = references.on_device(graph, device)
        placement.save(tmp_path / "placement.json", graph, devices)
        options = CheckOptions(graphs_only=True, update=update)
        (result,) = check_models(
            read_config(tmp_path / "pyproject.toml"), options, Silent()
        ).results
    assert {code for problem in result.problems for code in problem.codes} == codes, result
    for problem in result.problems:
        assert problem.place is not None
        assert problem.place.file == "placement.json"
        assert '"dense":' in (problem.source or "")
