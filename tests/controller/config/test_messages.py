"""The lines about variables that have no flag."""

from __future__ import annotations

from controller.config.messages import unknown_variables
from controller.config.settings import OPTIONS


def test_a_variable_that_looks_like_ours_and_is_none_is_told():
    assert unknown_variables(OPTIONS.values(), {"VMHERD_WORKER": "3", "VMHERD_X": "", "PATH": "/bin"}) == (
        "VMHERD_WORKER: no such variable, ignored; did you mean VMHERD_WORKERS?",
        "VMHERD_X: no such variable, ignored",
    )


def test_known_variables_and_what_a_kubelet_sets_for_a_service_of_our_name_are_not_told():
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
