import pytest
from cli_answers import analysed
from command_runs import few_rounds

# Names that the command, its children or TensorFlow import, and that a model's folder may have too.
NAMES = ("json", "queue", "keras", "numpy", "yaml", "tensorboard", "placement_advisor")
TRAP = "import pathlib; pathlib.Path({path!r}).touch()\n"


@pytest.fixture(scope="module", autouse=True)
def _few_rounds():
    with few_rounds():
        yield


@pytest.fixture
def analyze(advisor, tmp_path):
    """Analyses a model, or the text of one, into a folder of this test's own."""

    def run(model, *words, name="model.py", into="out", **options):
        if isinstance(model, str):
            (tmp_path / name).write_text(model)
            model = tmp_path / name
        return analysed(advisor, model, tmp_path / into, *words, **options)

    return run


@pytest.fixture
def checkout(tmp_path):
    """A folder whose modules leave a file beside it when they are run."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(TRAP.format(path=str(tmp_path / f"{name} ran")))
    return folder
