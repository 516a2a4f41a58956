import pytest
from cli_answers import analysed
from command_runs import few_rounds


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
