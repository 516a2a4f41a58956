"""The secret of hosts: made, read, refused where it is no secret any more."""

import datetime
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from placement_advisor.errors import AdvisorError
from placement_advisor.remote_hosts.tls import (
    ANALYSIS_DAYS,
    certificate,
    client_context,
    new_secret,
    read_secret,
    server_context,
    write_secret,
)


def write(path, content, mode=0o600):
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_secret_is_read_as_it_was_written_once_and_good_for_a_day_back_too(tmp_path):
    path = tmp_path / "hosts.pem"
    write_secret(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = read_secret(path)
    assert secret == path.read_bytes()
    assert secret.startswith(b"-----BEGIN PRIVATE KEY-----")
    found = x509.load_der_x509_certificate(certificate(new_secret(ANALYSIS_DAYS)))
    now = datetime.datetime.now(datetime.UTC)
    assert now - found.not_valid_before_utc >= datetime.timedelta(days=1)
    assert found.not_valid_after_utc - found.not_valid_before_utc == datetime.timedelta(days=3)


def test_no_secret_is_overwritten(tmp_path):
    path = write(tmp_path / "hosts.pem", b"in use")
    with pytest.raises(AdvisorError, match="exists already"):
        write_secret(path)
    assert path.read_bytes() == b"in use"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_secret_that_others_may_read_or_change_is_refused(tmp_path, mode):
    path = write(tmp_path / "hosts.pem", new_secret(1), mode)
    with pytest.raises(AdvisorError, match=f"mode {mode:04o}"):
        read_secret(path)


def halves(secret):
    key, mark, rest = secret.partition(b"-----BEGIN CERTIFICATE-----")
    return key, mark + rest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hosts: a, b\n",
        halves(new_secret(1))[0],
        halves(new_secret(1))[1],
        halves(new_secret(1))[0] + halves(new_secret(1))[1],
        new_secret(1) + b"\n" * 20_000,
        b"\xff" * 900,
    ],
    ids=["empty", "text", "key alone", "certificate alone", "no pair", "too long", "bytes"],
)
def test_what_is_no_secret_is_told_so(tmp_path, content):
    path = write(tmp_path / "hosts.pem", content)
    with pytest.raises(AdvisorError, match="is no secret of ours") as raised:
        read_secret(path)
    assert "--new-secret" in (raised.value.hint or "")


def test_an_encrypted_key_is_refused_and_nobody_asked_for_its_password(tmp_path):
    from cryptography.hazmat.primitives import serialization

    key, rest = halves(new_secret(1))
    locked = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    with pytest.raises(AdvisorError, match="is no secret of ours"):
        read_secret(write(tmp_path / "hosts.pem", locked + rest))


def test_a_secret_past_its_days_says_which_they_were(tmp_path):
    path = write(tmp_path / "hosts.pem", new_secret(0))
    with pytest.raises(AdvisorError, match=r"is good from \d{4}-\d\d-\d\d to"):
        read_secret(path)


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: os.mkfifo(path, 0o600)])
def test_what_is_no_plain_file_is_neither_read_nor_waited_for(tmp_path, make):
    make(tmp_path / "hosts.pem")
    with pytest.raises(AdvisorError, match="not a file"):
        read_secret(tmp_path / "hosts.pem")


def test_a_file_that_is_not_there_is_told_with_how_to_make_one(tmp_path):
    with pytest.raises(AdvisorError, match="No such file") as raised:
        read_secret(tmp_path / "hosts.pem")
    assert "--new-secret" in (raised.value.hint or "")


def test_contexts_ask_for_a_certificate_and_leave_no_key_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    open_before = sorted(Path("/proc/self/fd").iterdir())
    secret = new_secret(1)
    for context in (server_context(secret), client_context(secret)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert sorted(Path("/proc/self/fd").iterdir()) == open_before
    assert list(tmp_path.iterdir()) == []
