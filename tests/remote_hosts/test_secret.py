"""The secret of the hosts of one analysis."""

import datetime
import ssl
from pathlib import Path

from cryptography import x509

from placement_advisor.remote_hosts.tls import (
    certificate,
    client_context,
    new_secret,
    server_context,
)


def test_a_secret_is_good_for_two_days_and_for_a_day_back():
    secret = new_secret()
    assert secret.startswith(b"-----BEGIN PRIVATE KEY-----")
    found = x509.load_der_x509_certificate(certificate(secret))
    now = datetime.datetime.now(datetime.UTC)
    assert now - found.not_valid_before_utc >= datetime.timedelta(days=1)
    assert found.not_valid_after_utc - found.not_valid_before_utc == datetime.timedelta(days=3)


def test_contexts_ask_for_a_certificate_and_leave_no_key_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    open_before = sorted(Path("/proc/self/fd").iterdir())
    secret = new_secret()
    for context in (server_context(secret), client_context(secret)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert sorted(Path("/proc/self/fd").iterdir()) == open_before
    assert list(tmp_path.iterdir()) == []
