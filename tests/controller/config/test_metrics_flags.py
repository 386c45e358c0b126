"""Settings for secure metrics: wrong combinations, and the permissions that the settings need."""

from __future__ import annotations

import click
import pytest

from controller.access import Permission
from controller.config.messages import describe
from controller.config.settings import Config
from controller.preflight.permissions import permissions_needed
from tests.command_line import parse

REVIEWS = {
    Permission("authentication.k8s.io", "tokenreviews", "create"),
    Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
}


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["--metrics-cert-file=a", "--metrics-key-file=b"],
            "--metrics-cert-file: needs --metrics-secure as well, because only HTTPS needs a certificate",
        ),
        (
            ["--metrics-secure", "--metrics-cert-file=a"],
            "--metrics-cert-file: needs --metrics-key-file as well: a certificate and its key belong together",
        ),
        (
            ["--metrics-secure", "--metrics-key-file=b"],
            "--metrics-key-file: needs --metrics-cert-file as well: a certificate and its key belong together",
        ),
    ],
)
def test_incomplete_settings_for_https_give_one_line(argv: list[str], line: str):
    with pytest.raises(click.UsageError) as caught:
        parse(argv, {})
    assert describe(caught.value) == line


def test_without_files_a_certificate_is_created():
    config = parse(["--metrics-secure"], {})
    assert (config.metrics_secure, config.metrics_cert_file, config.metrics_key_file) == (True, "", "")


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(observe=True),
        Config(leader_elect=False),
        Config(watch_namespaces=("blue",)),
    ],
)
def test_only_secure_metrics_need_permission_for_token_and_access_reviews(config: Config):
    secure = Config(**{name: getattr(config, name) for name in config.__struct_fields__} | {"metrics_secure": True})
    assert set(permissions_needed(secure)) - set(permissions_needed(config)) == REVIEWS
    assert not set(permissions_needed(config)) & REVIEWS
