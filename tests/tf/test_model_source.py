"""What a path is taken for, before anything is read."""

from __future__ import annotations

import pytest

from placement_advisor.errors import ModelError
from placement_advisor.tf.load.model_source import (
    SourceKind,
    source_kind,
    split_name,
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "path", "name"),
    [
        ("model.py", "model.py", None),
        ("model.py:net", "model.py", "net"),
        ("model.py:trainer.step", "model.py", "trainer.step"),
        ("model.py:", "model.py", None),
        ("run:3/model.py", "run:3/model.py", None),
        ("run:3/model.py:net", "run:3/model.py", "net"),
    ],
)
def test_a_name_follows_the_last_colon_unless_the_path_exists(here, words, path, name):
    (here / "run:3").mkdir()
    (here / "run:3" / "model.py").touch()
    (here / "model.py").touch()
    assert split_name(words) == (path, name)


@pytest.mark.parametrize("words", ["", ":net"])
def test_a_name_alone_is_refused(words):
    with pytest.raises(ModelError, match="no file given"):
        split_name(words)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.py", SourceKind.PYTHON),
        ("model.keras", SourceKind.KERAS),
        ("frozen.pb", SourceKind.FROZEN_GRAPH),
    ],
)
def test_a_file_is_known_by_its_suffix(here, name, kind):
    (here / name).touch()
    assert source_kind(here / name) is kind


def test_a_directory_with_a_saved_model_in_it_is_one(here):
    (here / "saved_model.pb").touch()
    assert source_kind(here) is SourceKind.SAVED_MODEL


def test_the_file_in_a_saved_model_is_answered_with_its_directory(here):
    (here / "exported").mkdir()
    (here / "exported" / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="part of a SavedModel") as caught:
        source_kind(here / "exported" / "saved_model.pb")
    assert str(here / "exported") in str(caught.value.hint)


def test_a_directory_of_versions_is_answered_with_the_last(here):
    for version in ("1", "2"):
        (here / version).mkdir()
        (here / version / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="holds several SavedModels") as caught:
        source_kind(here)
    assert str(here / "2") in str(caught.value.hint)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "notes"])
def test_another_file_is_answered_with_what_is_read(here, name):
    (here / name).touch()
    with pytest.raises(ModelError, match=f"{name}: not a model file") as caught:
        source_kind(here / name)
    assert ".keras" in str(caught.value.hint)
