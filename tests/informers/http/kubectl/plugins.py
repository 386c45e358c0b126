"""Users with exec plugins."""

import json
from typing import Final

from tests.informers.http.kubectl.cases import (
    BASIC,
    CERTIFICATE,
    PLUGIN,
    RUN,
    SECRET,
    V1,
    case,
    credential,
    document,
    plugin,
)

EXEC: Final = (
    case("exec plugin", document(plugin()), **RUN),
    case(
        "exec plugin of v1beta1",
        document(
            plugin(credential({"token": SECRET}, apiVersion=V1 + "beta1"), apiVersion=V1 + "beta1", interactiveMode="")
        ),
        **RUN,
    ),
    case("exec plugin of v1 without interactiveMode", document(plugin(interactiveMode="")), **RUN),
    case("exec plugin of an unknown interactiveMode", document(plugin(interactiveMode="Often")), **RUN),
    case("exec plugin of an unknown version", document(plugin(apiVersion="v9")), **RUN),
    case("exec plugin without a command", document(plugin(command="")), **RUN),
    case("exec plugin that needs a terminal", document(plugin(interactiveMode="Always")), **RUN),
    case("exec plugin in a folder below", document(plugin(command="sub/plugin.sh")), files={"sub/plugin.sh": PLUGIN}),
    case("exec plugin in PATH", document(plugin(command="my-plugin.sh")), files={"bin/my-plugin.sh": PLUGIN}),
    case("exec plugin by name in the folder", document(plugin(command="plugin.sh")), **RUN),
    case("exec plugin that is missing", document(plugin(command="./none"))),
    case("exec plugin that fails", document(plugin(command="false"))),
    case(
        "exec plugin with the cluster",
        document(
            plugin(provideClusterInfo=True),
            cluster={
                "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "web"}}],
                "tls-server-name": "api.example.org",
                "disable-compression": True,
                "proxy-url": "$PROXY",
            },
        ),
        **RUN,
    ),
    case(
        "exec plugin with the cluster of --server",
        document(plugin(provideClusterInfo=True)),
        flags={"--server": "$HTTPS/x"},
        **RUN,
    ),
    case(
        "exec plugin with a variable",
        document(
            plugin(
                "",
                command="sh",
                args=["-c", "printf '%s' \"$ANSWER\""],
                env=[{"name": "ANSWER", "value": credential({"token": SECRET})}],
            )
        ),
    ),
    case("exec plugin with a variable that is a number", document(plugin(env=[{"name": "X", "value": 1}])), **RUN),
    case("exec plugin with a variable without a name", document(plugin(env=[{"value": "1"}])), **RUN),
    case(
        "exec plugin with a client certificate",
        document(plugin({"clientCertificateData": "$CERT_TEXT", "clientKeyData": "$KEY_TEXT"})),
        **RUN,
    ),
    case(
        "exec plugin with a client certificate and a token",
        document(plugin({"token": SECRET, "clientCertificateData": "$CERT_TEXT", "clientKeyData": "$KEY_TEXT"})),
        **RUN,
    ),
    case(
        "exec plugin with a certificate without a key", document(plugin({"clientCertificateData": "$CERT_TEXT"})), **RUN
    ),
    case(
        "exec plugin with a token and a certificate without a key",
        document(plugin({"token": SECRET, "clientCertificateData": "$CERT_TEXT"})),
        **RUN,
    ),
    case("exec plugin with an empty status", document(plugin({})), **RUN),
    case(
        "exec plugin without a status",
        document(plugin(json.dumps({"apiVersion": V1, "kind": "ExecCredential"}))),
        **RUN,
    ),
    case("exec plugin that prints text", document(plugin("hello s3cr3t")), **RUN),
    case("exec plugin of another kind", document(plugin(credential({"token": SECRET}, kind="Pod"))), **RUN),
    case(
        "exec plugin that prints another version",
        document(plugin(credential({"token": SECRET}, apiVersion=V1 + "beta1"))),
        **RUN,
    ),
    case(
        "exec plugin with an expired token",
        document(plugin({"token": SECRET, "expirationTimestamp": "2020-01-01T00:00:00Z"})),
        **RUN,
    ),
    case(
        "exec plugin with a token that expires later",
        document(plugin({"token": SECRET, "expirationTimestamp": "2120-01-01T00:00:00+02:00"})),
        **RUN,
    ),
    case(
        "exec plugin with an unreadable time",
        document(plugin({"token": SECRET, "expirationTimestamp": "tomorrow"})),
        **RUN,
    ),
    case(
        "exec plugin with a time without a zone",
        document(plugin({"token": SECRET, "expirationTimestamp": "2120-01-01T00:00:00"})),
        **RUN,
    ),
    case(
        "exec plugin with a time that is null", document(plugin({"token": SECRET, "expirationTimestamp": None})), **RUN
    ),
    case("exec plugin beside a token", document({**plugin(), "token": SECRET}), **RUN),
    case("exec plugin beside a password", document({**plugin(), **BASIC}), **RUN),
    case("exec plugin beside a client certificate", document({**plugin(), **CERTIFICATE}), **RUN),
    case(
        "exec plugin beside an auth-provider",
        document({**plugin(), "auth-provider": {"name": "oidc", "config": {}}}),
        **RUN,
    ),
)
