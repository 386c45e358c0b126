"""The messages about environment variables that do not belong to any flag."""

from controller.config.options import unknown_variables
from controller.config.settings import OPTIONS


def test_an_unknown_variable_with_our_prefix_is_reported():
    assert unknown_variables(OPTIONS.values(), {"VMHERD_WORKER": "3", "VMHERD_X": "", "PATH": "/bin"}) == (
        "VMHERD_WORKER: no such variable, ignored; did you mean VMHERD_WORKERS?",
        "VMHERD_X: no such variable, ignored",
    )


def test_known_variables_and_those_of_a_service_named_vmherd_are_not_reported():
    env = dict.fromkeys(
        [
            *(option.variable for option in OPTIONS.values()),
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
    assert unknown_variables(OPTIONS.values(), env) == ()
