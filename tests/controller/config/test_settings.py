"""What a person may write on the command line and in the environment, and what is said of what he may not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.config.flags import UsageError, unknown_variables
from controller.config.options import Address, seconds_in, show_duration
from controller.config.settings import OPTIONS, Config, parse

CHOSEN = {
    "--kubeconfig": ("/etc/kube.conf", "/etc/kube.conf"),
    "--context": ("prod", "prod"),
    "--max-inflight": ("7", 7),
    "--kube-api-qps": ("12.5", 12.5),
    "--kube-api-burst": ("30", 30),
    "--mode": ("Takeover", "takeover"),
    "--second-writer-check": ("off", False),
    "--kubevirt-namespace": ("kubevirt", "kubevirt"),
    "--observe": ("on", True),
    "--replicaset-group": ("vmherd.dev", "vmherd.dev"),
    "--pool-group": ("pool.vmherd.dev", "pool.vmherd.dev"),
    "--watch-namespaces": ("blue,green", ("blue", "green")),
    "--workers": ("3", 3),
    "--burst": ("40", 40),
    "--resync-period": ("10m", 600.0),
    "--revision-history": ("0", 0),
    "--sync-timeout": ("1m30s", 90.0),
    "--shutdown-grace": ("1.5s", 1.5),
    "--leader-elect": ("false", False),
    "--leader-election-id": ("vmherd-blue", "vmherd-blue"),
    "--leader-election-namespace": ("vmherd-system", "vmherd-system"),
    "--lease-duration": ("30s", 30.0),
    "--renew-deadline": ("8s", 8.0),
    "--retry-period": ("500ms", 0.5),
    "--metrics-bind-address": ("127.0.0.1:9090", Address("127.0.0.1", 9090)),
    "--metrics-secure": ("on", True),
    "--metrics-cert-file": ("/tls/tls.crt", "/tls/tls.crt"),
    "--metrics-key-file": ("/tls/tls.key", "/tls/tls.key"),
    "--health-probe-bind-address": ("0", None),
    "--object-metrics": ("off", False),
    "--debug-endpoints": ("true", True),
    "--log-level": ("DEBUG", "debug"),
    "--log-format": ("json", "json"),
}
"""For each flag a value that is not its default: as text, and as what becomes of it."""

NEEDS = {
    "--metrics-cert-file": {"VMHERD_METRICS_SECURE": "on", "VMHERD_METRICS_KEY_FILE": "/tls/tls.key"},
    "--metrics-key-file": {"VMHERD_METRICS_SECURE": "on", "VMHERD_METRICS_CERT_FILE": "/tls/tls.crt"},
}
"""What some flags make no sense without."""

BY_FLAG = {option.flag: option for option in OPTIONS}


def complaint(*argv: str, **env: str) -> str:
    """The line that a person reads who called the program like this."""
    with pytest.raises(UsageError) as caught:
        parse(argv, env)
    line = str(caught.value)
    assert "\n" not in line
    return line


def complaint_if_any(*argv: str) -> str:
    try:
        parse(argv, {})
    except UsageError as error:
        return str(error)
    return ""


def test_nothing_said_means_the_defaults():
    assert parse([], {}) == Config()


def test_every_field_has_its_option_and_every_option_its_field():
    assert sorted(option.field for option in OPTIONS) == sorted(field.name for field in structs.fields(Config))


def test_every_option_is_tried_here():
    assert set(CHOSEN) == set(BY_FLAG)


@pytest.mark.parametrize("flag", CHOSEN)
def test_a_flag_sets_its_field(flag):
    text, value = CHOSEN[flag]
    option = BY_FLAG[flag]
    assert getattr(Config(), option.field) != value
    argv = [flag, text] if not option.kind.switch else [f"{flag}={text}"]
    assert getattr(parse(argv, NEEDS.get(flag, {})), option.field) == value


@pytest.mark.parametrize("flag", CHOSEN)
def test_the_variable_of_a_flag_sets_the_same_field(flag):
    text, value = CHOSEN[flag]
    option = BY_FLAG[flag]
    assert option.variable == "VMHERD_" + flag[2:].replace("-", "_").upper()
    assert getattr(parse([], {option.variable: text, **NEEDS.get(flag, {})}), option.field) == value


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_a_default_is_shown_the_way_it_can_be_typed(option):
    default = getattr(Config(), option.field)
    assert option.kind.read(option.kind.show(default)) == default


def test_a_flag_wins_over_its_variable():
    assert parse(["--workers", "3"], {"VMHERD_WORKERS": "4"}).workers == 3


def test_a_variable_that_a_flag_overrides_may_be_wrong():
    assert parse(["--workers", "3"], {"VMHERD_WORKERS": "many"}).workers == 3


def test_an_empty_variable_counts_as_not_set():
    assert parse([], {"VMHERD_WORKERS": "", "VMHERD_WATCH_NAMESPACES": ""}) == Config()


def test_of_a_flag_given_twice_the_last_one_counts():
    assert parse(["--workers", "3", "--workers", "4"], {}).workers == 4


def test_namespaces_add_up_without_doubles():
    config = parse(["--watch-namespaces", "blue, green", "--watch-namespaces=red", "--watch-namespaces=blue"], {})
    assert config.watch_namespaces == ("blue", "green", "red")
    assert config.namespaces == config.watch_namespaces


def test_without_namespaces_all_are_watched_as_one():
    assert parse([], {}).namespaces == ("",)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--leader-elect"], True),
        (["--no-leader-elect"], False),
        (["--leader-elect=false"], False),
        (["--no-leader-elect", "--leader-elect"], True),
        (["--leader-elect", "--no-leader-elect"], False),
    ],
)
def test_a_switch_is_turned_on_and_off(argv, expected):
    assert parse(argv, {}).leader_elect is expected


def test_the_lease_is_in_the_pods_namespace_unless_told_otherwise():
    assert parse([], {}, pod_namespace="vmherd-system").leader_election_namespace == "vmherd-system"
    chosen = ["--leader-election-namespace", "other"]
    assert parse(chosen, {}, pod_namespace="vmherd-system").leader_election_namespace == "other"


def test_the_request_bucket_holds_two_seconds_worth_unless_told_otherwise():
    assert parse(["--kube-api-qps", "50"], {}).request_burst == 100
    assert parse(["--kube-api-qps", "0.1"], {}).request_burst == 1
    assert parse(["--kube-api-qps", "50", "--kube-api-burst", "60"], {}).request_burst == 60


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("15", 15.0),
        ("2.5", 2.5),
        ("15s", 15.0),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("500ms", 0.5),
        ("1s500ms", 1.5),
        ("", None),
        ("s", None),
        ("-1s", None),
        ("1 s", None),
        ("1d", None),
        ("1m30", None),
        ("1.2.3s", None),
        ("１s", None),
        ("inf", None),
        ("nan", None),
        ("1e3", None),
    ],
)
def test_durations_are_read_as_go_programs_read_them(text, seconds):
    assert seconds_in(text) == seconds


@given(st.integers(0, 10**9).map(lambda ms: ms / 1000))
def test_a_duration_that_is_shown_reads_the_same(seconds):
    assert seconds_in(show_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        (":0", Address("", 0)),
        ("0", None),
        ("localhost:80", Address("localhost", 80)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ("[::1]:80", Address("::1", 80)),
        ("[::]:80", Address("::", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse(["--metrics-bind-address", text], {}).metrics_bind_address == address
    assert address is None or str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "8080", "host", ":", ":http", ":65536", "::1:80", "[x]:80", "[]:80", "a b:80", "http://x:80", ":-1", "-h:1"],
)
def test_a_bad_address_is_refused(text):
    line = complaint(f"--metrics-bind-address={text}")
    assert line.startswith("--metrics-bind-address ")
    assert "expected host:port" in line


WRONG = {
    "--max-inflight": "0",
    "--kube-api-qps": "-1",
    "--kube-api-burst": "-1",
    "--mode": "beside",
    "--second-writer-check": "maybe",
    "--kubevirt-namespace": "Kubevirt",
    "--observe": "2",
    "--replicaset-group": "kubevirt",
    "--pool-group": "Pool.kubevirt.io",
    "--watch-namespaces": "blue,Green",
    "--workers": "0",
    "--burst": "1e3",
    "--resync-period": "-1s",
    "--revision-history": "-1",
    "--sync-timeout": "soon",
    "--shutdown-grace": "1 s",
    "--leader-elect": "perhaps",
    "--leader-election-id": "a/b",
    "--leader-election-namespace": "a.b",
    "--lease-duration": "15.5s",
    "--renew-deadline": "0",
    "--retry-period": "nan",
    "--metrics-bind-address": "8080",
    "--health-probe-bind-address": "8081",
    "--metrics-secure": "tls",
    "--object-metrics": "2",
    "--debug-endpoints": "x",
    "--log-level": "loud",
    "--log-format": "xml",
}


def test_everything_that_can_be_wrong_is_tried_here():
    assert set(CHOSEN) - set(WRONG) == {"--kubeconfig", "--context", "--metrics-cert-file", "--metrics-key-file"}


@pytest.mark.parametrize("flag", WRONG)
def test_a_wrong_value_is_told_with_its_flag_and_what_would_be_right(flag):
    line = complaint(f"{flag}={WRONG[flag]}")
    assert re.fullmatch(rf"{flag} ['\w].*: expected .+", line) or line.startswith(f"{flag} {WRONG[flag]}: expected ")


@pytest.mark.parametrize("flag", WRONG)
def test_a_wrong_variable_is_told_by_its_name(flag):
    variable = BY_FLAG[flag].variable
    assert complaint(**{variable: WRONG[flag]}).startswith(f"{variable}=")


@given(st.sampled_from([flag for flag in WRONG]), st.text())
def test_whatever_is_written_gives_a_configuration_or_one_printable_line(flag, text):
    line = complaint_if_any(f"{flag}={text}")
    assert line.isprintable()
    assert len(line) < 400


@given(
    st.lists(
        st.sampled_from(["--", "-", "-x", "--x=1", "x", "--workers", "3", "--leader-elect", "--no-leader-elect=x"])
    )
)
def test_whatever_is_typed_gives_a_configuration_or_one_printable_line(argv):
    assert complaint_if_any(*argv).isprintable()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--worker", "3"], "--worker: no such flag; did you mean --workers?"),
        (["--no-leader-elct"], "--no-leader-elct: no such flag; did you mean --no-leader-elect?"),
        (["--frobnicate", "3"], "--frobnicate: no such flag; 'vmherd run --help' lists them"),
        (["-v"], "-v: no such flag; 'vmherd run --help' lists them"),
        (["now"], "now: expected flags alone; 'vmherd run --help' lists them"),
        (["--workers"], "--workers: expected a value after it"),
        (["--workers", "-1"], "--workers -1: expected a whole number from 1 to 1000"),
        (["--log-level", "loud"], "--log-level loud: expected one of debug, info, warning, error"),
        (["--lease-duration", "10s"], "--lease-duration 10s: expected more than 10s, because --renew-deadline is 10s"),
        (["--renew-deadline", "20s"], "--renew-deadline 20s: expected less than 15s, because --lease-duration is 15s"),
        (["--retry-period", "9s"], "--retry-period 9s: expected less than 8.33s, because --renew-deadline is 10s"),
        (
            ["--metrics-bind-address", ":8081"],
            "--metrics-bind-address :8081: expected another port, because metrics and probes each have a server",
        ),
    ],
)
def test_the_lines_that_people_read(argv, line):
    assert complaint(*argv) == line


@pytest.mark.parametrize(
    ("argv", "mode", "groups"),
    [
        ([], "auto", ("kubevirt.io", "pool.kubevirt.io")),
        (["--mode", "standalone"], "standalone", ("kubevirt.io", "pool.kubevirt.io")),
        (["--mode", "takeover"], "takeover", ("kubevirt.io", "pool.kubevirt.io")),
        (["--mode", "alongside"], "alongside", ("vmherd.dev", "pool.vmherd.dev")),
        (["--mode", "alongside", "--pool-group", "a.b"], "alongside", ("vmherd.dev", "a.b")),
        (["--mode", "alongside", "--pool-group", "pool.kubevirt.io"], "alongside", ("vmherd.dev", "pool.kubevirt.io")),
        (["--replicaset-group", "kubevirt.io"], "standalone", ("kubevirt.io", "pool.kubevirt.io")),
        (["--mode", "auto", "--pool-group", "a.b"], "standalone", ("kubevirt.io", "a.b")),
    ],
)
def test_the_groups_follow_from_the_mode_unless_they_are_named(argv, mode, groups):
    config = parse(argv, {})
    assert (config.mode, config.groups) == (mode, groups)


def test_an_onlooker_needs_no_lease():
    assert parse(["--observe", "--lease-duration", "1s"], {}).elects is False
    assert parse([], {}).elects is True


def test_a_contradiction_between_variables_names_a_variable():
    assert complaint(VMHERD_RENEW_DEADLINE="20").startswith("VMHERD_RENEW_DEADLINE=20: expected less than 15s")


def test_without_leader_election_its_times_do_not_matter():
    assert parse(["--no-leader-elect", "--lease-duration", "1s"], {}).lease_duration_s == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["--metrics-bind-address", ":0", "--health-probe-bind-address", ":0"],
        ["--metrics-bind-address", "127.0.0.1:80", "--health-probe-bind-address", "127.0.0.2:80"],
        ["--metrics-bind-address", "0", "--health-probe-bind-address", "0"],
    ],
)
def test_servers_that_do_not_meet_are_fine(argv):
    parse(argv, {})


def test_a_variable_that_looks_like_ours_and_is_none_is_told():
    assert unknown_variables(OPTIONS, {"VMHERD_WORKER": "3", "VMHERD_X": "", "PATH": "/bin"}) == (
        "VMHERD_WORKER: no such variable, ignored; did you mean VMHERD_WORKERS?",
        "VMHERD_X: no such variable, ignored",
    )


def test_known_variables_and_what_a_kubelet_sets_for_a_service_of_our_name_are_not_told():
    env = dict.fromkeys(
        [
            *(option.variable for option in OPTIONS),
            "VMHERD_REVISION",
            "VMHERD_SERVICE_HOST",
            "VMHERD_SERVICE_PORT",
            "VMHERD_SERVICE_PORT_METRICS",
            "VMHERD_PORT",
            "VMHERD_PORT_8080_TCP",
            "VMHERD_PORT_8080_TCP_ADDR",
            "VMHERD_METRICS_SERVICE_HOST",
        ],
        "",
    )
    assert unknown_variables(OPTIONS, env) == ()


def test_help_tells_every_flag_its_variable_and_its_default(capsys):
    with pytest.raises(SystemExit) as done:
        parse(["--help"], {})
    assert done.value.code == 0
    text = capsys.readouterr().out
    for option in OPTIONS:
        assert option.flag in text
        assert option.variable in text
    assert "VMHERD_WORKERS; default: 10]" in text
