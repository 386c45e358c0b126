"""Users with exec plugins."""

import json
from typing import Any, Final

from tests.informers.http.kubectl.cases import (
    BASIC,
    CERTIFICATE,
    PLUGIN,
    RUN,
    SECRET,
    V1,
    Case,
    case,
    credential,
    document,
    plugin,
)


def running(name: str, answer: Any = None, *, user: Any = None, flags: Any = None, **settings: Any) -> Case:
    """A case whose user has the exec plugin of the folder. `user` are the other fields of the user."""
    more = {"flags": flags} if flags else {}
    return case(f"exec plugin {name}", document({**plugin(answer, **settings), **(user or {})}), **RUN, **more)


BETA: Final = V1 + "beta1"
CLUSTER: Final = {
    "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "web"}}],
    "tls-server-name": "api.example.org",
    "disable-compression": True,
    "proxy-url": "$PROXY",
}
CERTIFICATE_TEXT: Final = {"clientCertificateData": "$CERT_TEXT"}
PAIR: Final = {**CERTIFICATE_TEXT, "clientKeyData": "$KEY_TEXT"}
PRINTS: Final = {"command": "sh", "args": ["-c", "printf '%s' \"$ANSWER\""]}
TIMES: Final = {
    "an expired token": "2020-01-01T00:00:00Z",
    "a token that expires later": "2120-01-01T00:00:00+02:00",
    "an unreadable time": "tomorrow",
    "a time without a zone": "2120-01-01T00:00:00",
    "a time that is null": None,
}
BESIDE: Final[dict[str, dict[str, Any]]] = {
    "a token": {"token": SECRET},
    "a password": BASIC,
    "a client certificate": CERTIFICATE,
    "an auth-provider": {"auth-provider": {"name": "oidc", "config": {}}},
}
EXEC: Final = (
    running("alone"),
    running("of v1beta1", credential({"token": SECRET}, apiVersion=BETA), apiVersion=BETA, interactiveMode=""),
    running("of v1 without interactiveMode", interactiveMode=""),
    running("of an unknown interactiveMode", interactiveMode="Often"),
    running("of an unknown version", apiVersion="v9"),
    running("without a command", command=""),
    running("that needs a terminal", interactiveMode="Always"),
    case("exec plugin in a folder below", document(plugin(command="sub/plugin.sh")), files={"sub/plugin.sh": PLUGIN}),
    case("exec plugin in PATH", document(plugin(command="my-plugin.sh")), files={"bin/my-plugin.sh": PLUGIN}),
    running("by name in the folder", command="plugin.sh"),
    case("exec plugin that is missing", document(plugin(command="./none"))),
    case("exec plugin that fails", document(plugin(command="false"))),
    case("exec plugin with the cluster", document(plugin(provideClusterInfo=True), cluster=CLUSTER), **RUN),
    running("with the cluster of --server", provideClusterInfo=True, flags={"--server": "$HTTPS/x"}),
    running("with a variable", "", env=[{"name": "ANSWER", "value": credential({"token": SECRET})}], **PRINTS),
    running("with a variable that is a number", env=[{"name": "X", "value": 1}]),
    running("with a variable without a name", env=[{"value": "1"}]),
    running("with a client certificate", PAIR),
    running("with a client certificate and a token", {"token": SECRET, **PAIR}),
    running("with a certificate without a key", CERTIFICATE_TEXT),
    running("with a token and a certificate without a key", {"token": SECRET, **CERTIFICATE_TEXT}),
    running("with an empty status", {}),
    running("without a status", json.dumps({"apiVersion": V1, "kind": "ExecCredential"})),
    running("that prints text", "hello s3cr3t"),
    running("of another kind", credential({"token": SECRET}, kind="Pod")),
    running("that prints another version", credential({"token": SECRET}, apiVersion=BETA)),
    *(running(f"with {name}", {"token": SECRET, "expirationTimestamp": time}) for name, time in TIMES.items()),
    *(running(f"beside {name}", user=user) for name, user in BESIDE.items()),
)
