"""Flags and variables of `vmherd run`: the accepted values, and the error messages for wrong values."""

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.commands.run import command
from controller.config.options import Switch, describe, unknown_variables
from controller.config.settings import OPTIONS, Config
from controller.config.types import ADDRESS, Address, seconds_in, show_duration
from tests.command_line import parse

CHOSEN = {
    "--kubeconfig": ("/etc/kube.conf", "/etc/kube.conf", None),
    "--context": ("prod", "prod", None),
    "--max-inflight": ("7", 7, "0"),
    "--mode": ("Takeover", "takeover", "beside"),
    "--second-writer-check": ("off", False, "maybe"),
    "--kubevirt-namespace": ("kubevirt", "kubevirt", "Kubevirt"),
    "--observe": ("on", True, "2"),
    "--replicaset-group": ("vmherd.dev", "vmherd.dev", "kubevirt"),
    "--pool-group": ("pool.vmherd.dev", "pool.vmherd.dev", "Pool.kubevirt.io"),
    "--watch-namespaces": ("blue,green", ("blue", "green"), "blue,Green"),
    "--workers": ("3", 3, "0"),
    "--burst": ("40", 40, "1e3"),
    "--max-replicas": ("50", 50, "-1"),
    "--revision-history": ("0", 0, "-1"),
    "--disruption-budgets": ("on", True, "some"),
    "--migrations": ("on", True, "some"),
    "--sync-timeout": ("1m30s", 90.0, "soon"),
    "--shutdown-grace": ("1.5s", 1.5, "1 s"),
    "--leader-elect": ("false", False, "perhaps"),
    "--leader-election-id": ("vmherd-blue", "vmherd-blue", "a/b"),
    "--leader-election-namespace": ("vmherd-system", "vmherd-system", "a.b"),
    "--lease-duration": ("30s", 30.0, "15.5s"),
    "--renew-deadline": ("8s", 8.0, "0"),
    "--retry-period": ("500ms", 0.5, "nan"),
    "--metrics-bind-address": ("127.0.0.1:9090", Address("127.0.0.1", 9090), "8080"),
    "--metrics-secure": ("on", True, "tls"),
    "--metrics-cert-file": ("/tls/tls.crt", "/tls/tls.crt", None),
    "--metrics-key-file": ("/tls/tls.key", "/tls/tls.key", None),
    "--health-probe-bind-address": ("0", None, "8081"),
    "--object-metrics": ("off", False, "2"),
    "--debug-endpoints": ("true", True, "x"),
    "--log-level": ("DEBUG", "debug", "loud"),
    "--log-format": ("json", "json", "xml"),
}
"""For each flag, a value other than the default, first as text and then as the parsed value, and a wrong text."""

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


def test_every_field_has_its_option_and_every_option_its_field():
    found_in_the_cluster = {"versions", "in_pod"}
    fields = {field.name for field in structs.fields(Config)}
    assert sorted(OPTIONS) == sorted(fields - found_in_the_cluster)


def test_the_table_has_every_option():
    assert set(CHOSEN) == set(BY_FLAG)


@pytest.mark.parametrize("flag", CHOSEN)
def test_a_flag_and_its_variable_set_the_same_field(flag):
    text, value, _ = CHOSEN[flag]
    option = BY_FLAG[flag]
    assert getattr(Config(), option.name) != value
    assert option.variable == "VMHERD_" + flag[2:].replace("-", "_").upper()
    for argv, env in (([flag, text], {}), ([f"{flag}={text}"], {}), ([], {option.variable: text})):
        assert getattr(parse(argv, {**env, **NEEDS.get(flag, {})}), option.name) == value


@pytest.mark.parametrize("text", ["blue,green", "blue, green", "blue green", ",blue,,green,"])
def test_a_variable_holds_several_namespaces(text):
    assert parse([], {"VMHERD_WATCH_NAMESPACES": text}).watch_namespaces == ("blue", "green")


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


WRONG = {flag: wrong for flag, (_, _, wrong) in CHOSEN.items() if wrong is not None}


@pytest.mark.parametrize("flag", WRONG)
def test_the_error_for_a_wrong_value_names_its_flag_or_variable(flag):
    variable = BY_FLAG[flag].variable
    lines = {flag: complaint(f"{flag}={WRONG[flag]}"), variable: complaint(**{variable: WRONG[flag]})}
    for name, line in lines.items():
        assert line.startswith(f"{name}: ")
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


LINES = {
    "--worker 3": "No such option '--worker'. Did you mean '--workers'?",
    "--frobnicate 3": "No such option '--frobnicate'; try 'vmherd run --help'",
    "-v": "No such option '-v'; try 'vmherd run --help'",
    "now": "Got unexpected extra argument (now); try 'vmherd run --help'",
    "--workers": "Option '--workers' requires an argument",
    "--workers -1": "--workers: -1 is not in the range 1<=x<=1000",
    "--workers 1.5": "--workers: '1.5' is not a valid integer",
    "--leader-elect=": "--leader-elect: '' is invalid; expected true or false",
    "--log-level loud": "--log-level: 'loud' is invalid; expected one of debug, info, warning, error",
    "--lease-duration 1.5s": "--lease-duration: '1.5s' is invalid; "
    "expected a duration in whole seconds, 1s or more, such as 15s or 1m30s",
    "--lease-duration 10s": "--lease-duration: --lease-duration (10s) has to be longer than --renew-deadline (10s)",
    "--renew-deadline 20s": "--renew-deadline: --lease-duration (15s) has to be longer than --renew-deadline (20s)",
    "--retry-period 9s": "--retry-period: --renew-deadline (10s) has to be longer than 1.2 times --retry-period (9s)",
    "--metrics-bind-address :8081": "--metrics-bind-address: port 8081 is used twice; "
    "metrics and probes have separate servers",
    "--metrics-cert-file=a --metrics-key-file=b": "--metrics-cert-file: needs --metrics-secure as well, "
    "because only HTTPS needs a certificate",
    **{
        f"--metrics-secure {one}=a": f"{one}: needs {other} as well: a certificate and its key belong together"
        for one, other in (("--metrics-cert-file", "--metrics-key-file"), ("--metrics-key-file", "--metrics-cert-file"))
    },
}


@pytest.mark.parametrize(("argv", "line"), LINES.items())
def test_the_line_for_each_error(argv, line):
    assert complaint(*argv.split()) == line


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
    assert re.findall(r"^(\S.*):$", text, re.MULTILINE) == [*command.groups, "Other"]


def test_an_unknown_variable_with_our_prefix_is_reported():
    assert unknown_variables(OPTIONS.values(), {"VMHERD_WORKER": "3", "VMHERD_X": "", "PATH": "/bin"}) == (
        "VMHERD_WORKER: no such variable, ignored; did you mean VMHERD_WORKERS?",
        "VMHERD_X: no such variable, ignored",
    )


def test_known_variables_and_those_of_a_service_named_vmherd_are_not_reported():
    of_service = "SERVICE_HOST SERVICE_PORT SERVICE_PORT_METRICS PORT PORT_8080_TCP PORT_8080_TCP_ADDR"
    names = ["REVISION", "METRICS_SERVICE_HOST", *of_service.split()]
    env = dict.fromkeys([*(option.variable for option in OPTIONS.values()), *(f"VMHERD_{name}" for name in names)], "")
    assert unknown_variables(OPTIONS.values(), env) == ()


# The types of options that click does not have


GOOD = {"0": 0.0, "15": 15.0, "2.5": 2.5, "1m30s": 90.0, "500ms": 0.5}
BAD = dict.fromkeys(["", "-1s", "1m30", "inf", "nan", "1e3"])


@pytest.mark.parametrize(("text", "seconds"), (GOOD | BAD).items())
def test_a_duration_is_in_the_format_of_go_or_in_plain_seconds(text, seconds):
    assert seconds_in(text) == seconds


@given(st.integers(0, 10**9).map(lambda ms: ms / 1000))
def test_a_shown_duration_reads_as_the_same_value(seconds):
    assert seconds_in(show_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


HOSTS = {"": ":8080 :0", "localhost": "localhost:80", "0.0.0.0": "0.0.0.0:80", "::1": "[::1]:80", "::": "[::]:80"}
ADDRESSES = [
    ("0", None),
    *((text, Address(host, int(text.rpartition(":")[2]))) for host, texts in HOSTS.items() for text in texts.split()),
]


@pytest.mark.parametrize(("text", "address"), ADDRESSES)
def test_an_address_is_a_host_and_a_port(text, address):
    assert ADDRESS.read(text) == address
    assert ADDRESS.show(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "8080", "host", ":", ":http", ":65536", "::1:80", "[x]:80", "[]:80", "a b:80", "http://x:80", ":-1", "-h:1"],
)
def test_a_bad_address_is_refused(text):
    with pytest.raises(click.BadParameter, match=f"^{re.escape(repr(text))} is invalid; expected host:port"):
        ADDRESS.convert(text, None, None)
