from pathlib import Path

import placement_advisor
from placement_advisor.processes.calls import is_ours, is_user_code


def test_the_model_file_and_what_lies_beside_it_is_the_users(tmp_path):
    model = tmp_path / "model.py"
    for file in (model, tmp_path / "layers" / "attention.py"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
        assert is_user_code(str(file), model)


def test_an_environment_beside_the_model_file_is_not_the_users(tmp_path):
    package = tmp_path / ".venv" / "lib" / "site-packages" / "keras.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    assert not is_user_code(str(package), tmp_path / "model.py")


def test_code_without_a_file_is_not_the_users(tmp_path):
    assert not is_user_code("<frozen importlib._bootstrap>", tmp_path / "model.py")


def test_the_advisor_is_never_the_users_even_if_the_model_lies_beside_it():
    init = Path(placement_advisor.__file__)
    assert is_ours(str(init))
    assert not is_user_code(str(init), init.parents[1] / "model.py")
