import subprocess

import pytest
import release

CHANGELOG = "## Unreleased\n\n## 0.3.0 (2026-12-01)\n\n- New.\n\n## [0.2.0]\n\n- Old.\n"


@pytest.fixture
def checkout(tmp_path):
    """A checkout of version 0.2.0, with what a release reads."""
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / release.FRONT).parent.mkdir()
    (tmp_path / release.FRONT).write_text('__version__ = "0.2.0"\nother = "0.2.0"\n')
    own = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*own, "commit", "--quiet", "-m", "All"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_release_has_the_version_of_the_checkout_or_the_one_that_is_named(checkout):
    front = checkout / release.FRONT
    assert release.prepare(checkout, None) == ("0.2.0", "placement-advisor 0.2.0\n\n- Old.\n")
    assert front.read_text() == '__version__ = "0.2.0"\nother = "0.2.0"\n'
    assert release.prepare(checkout, "0.3.0") == ("0.3.0", "placement-advisor 0.3.0\n\n- New.\n")
    assert front.read_text() == '__version__ = "0.3.0"\nother = "0.2.0"\n'


@pytest.mark.parametrize(
    ("to", "new_file", "said"),
    [
        (None, "notes.txt", "not committed"),
        ("0.4.0", None, "nothing under `## 0.4.0`"),
        ("0.3", None, "not a version"),
        ("0x3.0", None, "not a version"),
    ],
)
def test_what_is_not_ready_is_not_released(checkout, to, new_file, said):
    if new_file:
        (checkout / new_file).touch()
    with pytest.raises(SystemExit, match=said):
        release.prepare(checkout, to)
    assert '"0.2.0"' in (checkout / release.FRONT).read_text()


def test_a_section_without_a_word_is_none():
    with pytest.raises(SystemExit, match="says nothing"):
        release.changes(CHANGELOG.replace("- New.", ""), "0.3.0")


def test_a_wheel_of_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(release.venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(release.subprocess, "run", lambda *_, **__: None)
    other = "placement-advisor 0.1.0\n"
    monkeypatch.setattr(release.subprocess, "check_output", lambda *_, **__: other)
    with pytest.raises(SystemExit, match=r"calls itself: placement-advisor 0\.1\.0"):
        release.try_out(tmp_path / "wheel", "0.2.0")
