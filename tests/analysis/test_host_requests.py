"""Hosts and addresses in the words of users."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.analysis.hosts import HostRequest, parse_hosts, read_hostfile
from placement_advisor.errors import AdvisorError


def test_hosts_are_names_with_numbers_of_devices_and_where_others_reach_them():
    assert parse_hosts("a:2,b.example.org:1") == (
        HostRequest(name="a", devices=2),
        HostRequest(name="b.example.org", devices=1),
    )
    assert parse_hosts("a:2@10.0.0.5, b:2@fe80::1%eth0, 10.0.0.7:1@b-fast") == (
        HostRequest(name="a", devices=2, address="10.0.0.5"),
        HostRequest(name="b", devices=2, address="fe80::1%eth0"),
        HostRequest(name="10.0.0.7", devices=1, address="b-fast"),
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "--hosts : '' is not a host with a number of devices"),
        ("a", "--hosts a: 'a' is not a host with a number of devices"),
        ("a:2,", "--hosts a:2,: '' is not a host"),
        ("a:-1", "'a:-1' is not a host"),
        ("a:٢", "is not a host"),
        ("a:2@", "'a:2@' is not a host"),
        ("-oProxyCommand=reboot:2", "is not a host"),
        ("a;reboot:2", "is not a host"),
        ("a:0", "a cannot have 0 devices"),
        ("a:22222", "a cannot have 22222 devices"),
        ("a:9999999999", "is not a host"),
        ("a:2,b:1,a:1", "host a is named twice"),
        # A user is for the launcher to know.
        ("erika@a:2", "whom to log in as is said by --launch 'ssh ME@{host}'"),
    ],
)
def test_what_names_no_hosts_is_refused(words, problem):
    with pytest.raises(AdvisorError) as error:
        parse_hosts(words)
    assert problem in f"{error.value.message}; {error.value.hint}"
    assert error.value.hint


def test_a_hostfile_has_a_host_on_each_line_or_cannot_be_read(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# ours\na slots=2  # the old one\n\n  b:1@10.0.0.6\nc slots = 3\n")
    assert read_hostfile(file) == (
        HostRequest(name="a", devices=2),
        HostRequest(name="b", devices=1, address="10.0.0.6"),
        HostRequest(name="c", devices=3),
    )
    with pytest.raises(AdvisorError, match="cannot be read: No such file"):
        read_hostfile(tmp_path / "nowhere")
    with pytest.raises(AdvisorError, match="cannot be read: not a file"):
        read_hostfile(tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "names no host"),
        (b"# nobody\n", "names no host"),
        (b"a slots=2\nb\n", "line 2: 'b' is not a host with a number of devices"),
        (b"a slots=0\n", "line 1: a cannot have 0 devices"),
        (b"a slots=2 max_slots=4\n", "line 1: 'a slots=2 max_slots=4' is not a host"),
        (b"a:1\na slots=2\n", "host a is named twice"),
        (b"\xff\xfe", "not a text file"),
    ],
)
def test_a_file_that_names_no_hosts_is_refused(tmp_path, content, problem):
    file = tmp_path / "hosts"
    file.write_bytes(content)
    with pytest.raises(AdvisorError) as error:
        read_hostfile(file)
    assert problem in error.value.message


@given(st.text(max_size=30))
def test_any_words_are_hosts_or_refused(words):
    try:
        hosts = parse_hosts(words)
    except AdvisorError:
        return
    assert all(host.devices > 0 and not host.name.startswith("-") for host in hosts)


@pytest.mark.parametrize(
    ("where", "address"),
    [
        ("[2001:db8::5]", "2001:db8::5"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("2001:db8::5:7600", "2001:db8::5:7600"),
        ("::1", "::1"),
    ],
)
def test_an_address_may_be_one_of_ipv6(where, address):
    (found,) = parse_hosts(f"a:2@{where}")
    assert found == HostRequest(name="a", devices=2, address=address)
    assert parse_hosts(found.words) == (found,)


@pytest.mark.parametrize(
    "where",
    ["10.0.0.1:7600", "b:0", "[2001:db8::5]:7600", "[b", "b]:1", "[]", "b:", ":7600", "[b]1"],
)
def test_what_is_no_address_is_refused_with_examples(where):
    with pytest.raises(AdvisorError, match="is no address") as error:
        parse_hosts(f"a:2@{where}")
    assert "[2001:db8::5], without a port" in (error.value.hint or "")
