"""Flags and variables of `vmherd run`: the accepted values, and the error messages for wrong values."""

from __future__ import annotations

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.commands.run import command
from controller.config.messages import describe
from controller.config.options import Switch
from controller.config.settings import OPTIONS, Config
from controller.config.types import Address
from tests.command_line import parse

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
    "--max-replicas": ("50", 50),
    "--resync-period": ("10m", 600.0),
    "--revision-history": ("0", 0),
    "--replicaset-history": ("off", False),
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
"""For each flag, a value other than the default: first as text, then as the parsed value."""

NEEDS = {
    "--metrics-cert-file": {"VMHERD_METRICS_SECURE": "on", "VMHERD_METRICS_KEY_FILE": "/tls/tls.key"},
    "--metrics-key-file": {"VMHERD_METRICS_SECURE": "on", "VMHERD_METRICS_CERT_FILE": "/tls/tls.crt"},
}

BY_FLAG = {option.flag: option for option in OPTIONS.values()}


def complaint(*argv: str, **env: str) -> str:
    """The error message for these flags and variables; "" if they are valid."""
    try:
        parse(argv, env)
    except click.UsageError as error:
        return describe(error)
    return ""


def test_without_flags_all_fields_have_their_defaults():
    assert parse([], {}) == Config()


def test_every_field_has_its_option_and_every_option_its_field():
    found_in_the_cluster = {"versions", "in_pod"}
    fields = {field.name for field in structs.fields(Config)}
    assert sorted(OPTIONS) == sorted(fields - found_in_the_cluster)


def test_the_table_has_every_option():
    assert set(CHOSEN) == set(BY_FLAG)


@pytest.mark.parametrize("flag", CHOSEN)
def test_a_flag_sets_its_field(flag):
    text, value = CHOSEN[flag]
    option = BY_FLAG[flag]
    assert getattr(Config(), option.name) != value
    for argv in ([flag, text], [f"{flag}={text}"]):
        assert getattr(parse(argv, NEEDS.get(flag, {})), option.name) == value


@pytest.mark.parametrize("flag", CHOSEN)
def test_the_variable_of_a_flag_sets_the_same_field(flag):
    text, value = CHOSEN[flag]
    option = BY_FLAG[flag]
    assert option.variable == "VMHERD_" + flag[2:].replace("-", "_").upper()
    assert getattr(parse([], {option.variable: text, **NEEDS.get(flag, {})}), option.name) == value


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.flag)
def test_a_default_is_shown_as_a_user_can_type_it(option):
    default = getattr(Config(), option.name)
    assert option.unset or option.type.convert(option.default, option, None) == default


def test_a_flag_wins_over_its_variable():
    assert parse(["--workers", "3"], {"VMHERD_WORKERS": "4"}).workers == 3


def test_a_variable_that_a_flag_overrides_may_be_wrong():
    assert parse(["--workers", "3"], {"VMHERD_WORKERS": "many"}).workers == 3


def test_an_empty_variable_counts_as_not_set():
    assert parse([], {"VMHERD_WORKERS": "", "VMHERD_WATCH_NAMESPACES": ""}) == Config()


def test_if_a_flag_is_given_twice_the_last_value_counts():
    assert parse(["--workers", "3", "--workers", "4"], {}).workers == 4


@pytest.mark.parametrize("text", ["blue,green", "blue, green", "blue green", ",blue,,green,"])
def test_a_variable_holds_several_namespaces(text):
    assert parse([], {"VMHERD_WATCH_NAMESPACES": text}).watch_namespaces == ("blue", "green")


def test_namespaces_of_several_flags_are_joined_without_duplicates():
    config = parse(["--watch-namespaces", "blue, green", "--watch-namespaces=red", "--watch-namespaces=blue"], {})
    assert config.watch_namespaces == ("blue", "green", "red")
    assert config.namespaces == config.watch_namespaces


def test_without_namespaces_one_watch_covers_all_namespaces():
    assert parse([], {}).namespaces == ("",)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--leader-elect"], True),
        (["--no-leader-elect"], False),
        (["--leader-elect=false"], False),
        (["--leader-elect", "false"], False),
        (["--leader-elect", "--log-level", "debug"], True),
        (["--no-leader-elect", "--leader-elect"], True),
        (["--leader-elect", "--no-leader-elect"], False),
    ],
)
def test_a_switch_is_turned_on_and_off(argv, expected):
    assert parse(argv, {}).leader_elect is expected


def test_the_lease_is_in_the_pods_namespace_by_default():
    assert parse([], {}, pod_namespace="vmherd-system").leader_election_namespace == "vmherd-system"
    chosen = ["--leader-election-namespace", "other"]
    assert parse(chosen, {}, pod_namespace="vmherd-system").leader_election_namespace == "other"


def test_a_process_is_in_a_pod_if_the_pod_has_a_namespace():
    assert parse([], {}, pod_namespace="vmherd-system").in_pod
    assert not parse([], {}).in_pod


def test_the_request_bucket_has_the_requests_of_two_seconds_by_default():
    assert parse(["--kube-api-qps", "50"], {}).request_burst == 100
    assert parse(["--kube-api-qps", "0.1"], {}).request_burst == 1
    assert parse(["--kube-api-qps", "50", "--kube-api-burst", "60"], {}).request_burst == 60


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
    "--max-replicas": "-1",
    "--resync-period": "-1s",
    "--revision-history": "-1",
    "--replicaset-history": "many",
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


def test_the_table_has_every_option_that_can_be_wrong():
    assert set(CHOSEN) - set(WRONG) == {"--kubeconfig", "--context", "--metrics-cert-file", "--metrics-key-file"}


@pytest.mark.parametrize("flag", WRONG)
def test_the_error_for_a_wrong_value_names_its_flag(flag):
    line = complaint(f"{flag}={WRONG[flag]}")
    assert line.startswith(f"{flag}: ")
    assert WRONG[flag] in line


@pytest.mark.parametrize("flag", WRONG)
def test_the_error_for_a_wrong_value_names_its_variable(flag):
    variable = BY_FLAG[flag].variable
    line = complaint(**{variable: WRONG[flag]})
    assert line.startswith(f"{variable}: ")
    assert WRONG[flag] in line


@given(st.sampled_from(list(WRONG)), st.text())
def test_each_value_gives_a_configuration_or_one_printable_line(flag, text):
    assert complaint(f"{flag}={text}").isprintable()


@given(
    st.lists(
        st.sampled_from(["--", "-", "-x", "--x=1", "x\ny", "--workers", "3", "--leader-elect", "--no-leader-elect=x"])
    )
)
def test_each_command_line_gives_a_configuration_or_one_printable_line(argv):
    assert complaint(*argv).isprintable()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--worker", "3"], "No such option '--worker'. Did you mean '--workers'?"),
        (["--frobnicate", "3"], "No such option '--frobnicate'; try 'vmherd run --help'"),
        (["-v"], "No such option '-v'; try 'vmherd run --help'"),
        (["now"], "Got unexpected extra argument (now); try 'vmherd run --help'"),
        (["--workers"], "Option '--workers' requires an argument"),
        (["--workers", "-1"], "--workers: -1 is not in the range 1<=x<=1000"),
        (["--workers", "1.5"], "--workers: '1.5' is not a valid integer"),
        (["--leader-elect="], "--leader-elect: '' is invalid; expected true or false"),
        (["--log-level", "loud"], "--log-level: 'loud' is invalid; expected one of debug, info, warning, error"),
        (
            ["--lease-duration", "1.5s"],
            "--lease-duration: '1.5s' is invalid; "
            "expected a duration in whole seconds, 1s or more, such as 15s or 1m30s",
        ),
        (
            ["--lease-duration", "10s"],
            "--lease-duration: --lease-duration (10s) has to be longer than --renew-deadline (10s)",
        ),
        (
            ["--renew-deadline", "20s"],
            "--renew-deadline: --lease-duration (15s) has to be longer than --renew-deadline (20s)",
        ),
        (
            ["--retry-period", "9s"],
            "--retry-period: --renew-deadline (10s) has to be longer than 1.2 times --retry-period (9s)",
        ),
        (
            ["--metrics-bind-address", ":8081"],
            "--metrics-bind-address: port 8081 is used twice; metrics and probes have separate servers",
        ),
    ],
)
def test_the_line_for_each_error(argv, line):
    assert complaint(*argv) == line


def test_a_typo_in_a_no_flag_has_a_suggestion():
    assert "'--no-leader-elect'" in complaint("--no-leader-elct")


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


def test_observe_needs_no_lease():
    assert parse(["--observe", "--lease-duration", "1s"], {}).elects is False
    assert parse([], {}).elects is True


def test_a_contradiction_between_variables_names_a_variable():
    assert complaint(VMHERD_RENEW_DEADLINE="20").startswith("VMHERD_RENEW_DEADLINE: --lease-duration (15s) has to")


def test_without_leader_election_its_durations_are_not_checked():
    assert parse(["--no-leader-elect", "--lease-duration", "1s"], {}).lease_duration_s == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["--metrics-bind-address", ":0", "--health-probe-bind-address", ":0"],
        ["--metrics-bind-address", "127.0.0.1:80", "--health-probe-bind-address", "127.0.0.2:80"],
        ["--metrics-bind-address", "0", "--health-probe-bind-address", "0"],
    ],
)
def test_servers_with_different_addresses_are_valid(argv):
    parse(argv, {})


def test_help_has_every_flag_with_its_variable_and_default_under_a_heading():
    text = command.get_help(click.Context(command, info_name="vmherd run"))
    plain = "".join(text.split())
    for option in OPTIONS.values():
        assert option.flag in plain
        assert f"{option.help}[envvar:{option.variable};default:".replace(" ", "") in plain
        assert (option.unset or option.default).replace(" ", "") in plain
        assert not isinstance(option, Switch) or f"{option.flag} / --no-{option.flag[2:]}" in text
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert headings == [*command.groups, "Other"]
