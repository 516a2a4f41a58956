"""`[tool.advisor]` of a pyproject.toml: what it says, and every mistake in it with its line."""

import pytest

from placement_advisor.check.causes import STEP_TOLERANCE, Limits
from placement_advisor.check.lock_file import ModelConfig, find_config, read_config
from placement_advisor.check.problem_codes import Place
from placement_advisor.errors import AdvisorError

FULL = """\
[project]
name = "ranker"

[tool.advisor]
hardware = "2xV100-NVLink"

[[tool.advisor.models]]
path = "models/ranker.py:train_step"
placement = "placements/ranker.json"
batch_size = 256
mode = "infer"
graph = "ranker.graph.json.gz"
args = ["--data", "a b"]
max_transfer_bytes = "40 MB"
max_peak_memory = "14 GiB"
max_step_regression = "7.5%"

[[tool.advisor.models]]
path = "models/words.py"
"""
MODEL = '[tool.advisor]\nhardware = "2xT4"\n[[tool.advisor.models]]\npath = "m.py"\n'
AT = ", line 5: tool.advisor.models[0]"


@pytest.fixture
def refused(tmp_path):
    """Returns what is wrong with a pyproject.toml."""

    def read(content):
        path = tmp_path / "pyproject.toml"
        path.write_text(content)
        with pytest.raises(AdvisorError) as caught:
            read_config(path)
        assert caught.value.message.startswith(str(path))
        assert "\n" not in caught.value.message
        return caught.value.message.removeprefix(str(path))

    return read


def test_everything_that_can_be_said(tmp_path):
    (tmp_path / "pyproject.toml").write_text(FULL)
    config = read_config(tmp_path / "pyproject.toml")
    assert config.root == tmp_path
    assert config.lock_file == tmp_path / "placements.lock.json"
    assert config.hardware == "2xV100-NVLink"
    assert config.place == Place("pyproject.toml", 5)
    assert config.models == (
        ModelConfig(
            path="models/ranker.py:train_step",
            placement="placements/ranker.json",
            batch_size=256,
            mode="infer",
            args=("--data", "a b"),
            graph="ranker.graph.json.gz",
            max_transfer_bytes=40_000_000,
            max_peak_bytes=14 * 1024**3,
            max_step_regression=0.075,
            place=Place("pyproject.toml", 7),
        ),
        ModelConfig(path="models/words.py", place=Place("pyproject.toml", 18)),
    )


def test_what_is_not_said_is_as_written_and_the_nearest_file_upwards_is_found(tmp_path):
    model = ModelConfig(path="m.py", place=Place("pyproject.toml", 1))
    assert model.placement == "as-written"
    assert model.batch_size is model.mode is model.graph is None
    assert model.limits == Limits(
        max_transfer_bytes=None, max_peak_bytes=None, max_step_regression=STEP_TOLERANCE
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(FULL)
    assert find_config(below) == tmp_path / "pyproject.toml"
    (below.parent / "pyproject.toml").write_text(FULL)
    assert find_config(below) == below.parent / "pyproject.toml"


def test_a_file_that_is_not_there_is_named_and_where_none_is_it_is_said_what_to_write(tmp_path):
    with pytest.raises(AdvisorError, match=r"no pyproject\.toml in .* or above") as caught:
        find_config(tmp_path)
    assert "[tool.advisor]" in (caught.value.hint or "")
    with pytest.raises(AdvisorError, match=r"gone\.toml: cannot be read: No such file"):
        read_config(tmp_path / "gone.toml")
    with pytest.raises(AdvisorError, match="not a file"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "[tool]", "[tool.ruff]\nindent = 4", "tool = 3", "[[tool]]\nadvisor = 1", "[tool2]"],
)
def test_a_file_without_the_table_says_what_to_add(refused, text):
    assert refused(text) == ": no [tool.advisor]"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (MODEL + "path = 3", ", line 5: not valid TOML: "),
        ("[tool.advisor]\nhardware = '" + "x" * 100_000, ", line 2: more than 100,000 characters"),
        ("[tool.advisor]\nmodels = []", ", line 1: tool.advisor: no field 'hardware'"),
        ("[tool.advisor]\nhardware = '2xT4'", ", line 1: tool.advisor: no field 'models'"),
        ("[tool.advisor]\nhardware = '2xT4'\nmodels = []", ", line 3: tool.advisor.models: [] is"),
        ("[tool.advisor]\nhardware = ''\nmodels = []", ", line 2: tool.advisor.hardware: '' is no"),
        (MODEL + "[[tool.advisor.models]]\n", ", line 5: tool.advisor.models[1]: no field 'path'"),
        (MODEL + "[[tool.advisor.models]]\n\npath = 'm.py'",
         ", line 7: tool.advisor.models[1].path: 'm.py' is listed twice"),
        (MODEL + "placment = 'auto'", AT + ".placment: unknown key; did you mean placement?"),
        (MODEL + '"a\\u001b[2J" = 1', ", line 3: tool.advisor.models[0].'a\\x1b[2J': unknown key"),
        (MODEL + 'graph = "a\\u0000"', AT + ".graph: 'a\\x00' is not a"),
        (MODEL + "args = 'x'", AT + ".args: "),
        (MODEL + "batch_size = 0", AT + ".batch_size: 0 is not a number"),
        (MODEL + "mode = 'training'", AT + ".mode: 'training' is not train or infer"),
        (MODEL + "max_transfer_bytes = '40 MX'",
         AT + ".max_transfer_bytes: '40 MX' is no size; write it as in"),
        (MODEL + "max_transfer_bytes = 40", AT + ".max_transfer_bytes: 40"),
        (MODEL + "max_peak_memory = '-1 GB'", AT + ".max_peak_memory: '-1"),
        (MODEL + f"max_peak_memory = '{'9' * 400} GB'", AT + ".max_peak"),
        (MODEL + "max_step_regression = '5'", AT + ".max_step_regression: '5' is no percentage"),
        (MODEL + f"max_step_regression = '{'9' * 400}%'", AT + ".max_st"),
    ],
    ids=str,
)  # fmt: skip
def test_every_mistake_is_one_error_with_its_line(refused, text, error):
    assert refused(text).startswith(error)
