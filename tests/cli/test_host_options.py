"""Options that ask for hosts, where they cannot be meant: one error, before anything starts."""

import pytest
from command_runs import run_here

from placement_advisor.remote_hosts.tls import new_secret

WAITING = "a:2@127.0.0.1:1"


@pytest.mark.parametrize("command", ["analyze model.py", "calibrate", "doctor"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (f"--hosts {WAITING}", "--hosts: at the port of host a a service waits"),
        ("--hosts a:2 --secret hosts.pem", "--secret: no host has a port"),
        ("--secret hosts.pem", "--secret needs --hosts or --hostfile"),
        ("--launch ssh", "--launch needs --hosts or --hostfile"),
        ("--hosts a:1", "one device has nothing to be split over"),
        ("--hosts a:2@[::1:7600", "'[::1:7600' is no address"),
        ("--hosts a:2 --hostfile hosts", "--hosts and --hostfile cannot be used together"),
        ("--hosts slurm", "--hosts slurm: SLURM_JOB_NODELIST is not set"),
        ("--hosts tf-config", "--hosts tf-config: TF_CONFIG is not set"),
    ],
)
def test_what_names_no_hosts_is_one_error(command, words, problem, tmp_path, monkeypatch):
    for name in ("SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("raise AssertionError('was run')\n")
    ran = run_here(*command.split(), *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
    assert "Traceback" not in ran.err


def test_a_secret_that_cannot_be_read_and_nobody_there_are_told(tmp_path):
    secret = tmp_path / "hosts.pem"
    ran = run_here("doctor", "--hosts", WAITING, "--secret", str(secret))
    assert (ran.code, ran.out) == (2, "")
    assert f"{secret}: No such file or directory" in ran.err
    secret.write_bytes(new_secret(1))
    secret.chmod(0o600)
    ran = run_here("doctor", "--hosts", WAITING, "--secret", str(secret))
    assert ran.code == 1
    said = " ".join(ran.out.split())
    assert "host a: 127.0.0.1:1 cannot be reached: Connection refused" in said
    assert "start `advisor worker --listen` there" in said
