"""Users with certificates, tokens, passwords, impersonation and exec plugins."""

import json
from base64 import urlsafe_b64encode
from typing import Any, Final

from tests.informers.http.kubectl.cases import (
    BASIC,
    CERTIFICATE,
    CERTIFICATE_DATA,
    PLUGIN,
    RUN,
    SECRET,
    V1,
    Case,
    asks,
    case,
    credential,
    document,
    plugin,
)


def id_token(expires: int) -> str:
    """A JWT without a signature. `expires` is a time in seconds since 1970."""
    parts = ({"alg": "none"}, {"iss": "https://127.0.0.1:1", "sub": SECRET, "exp": expires}, {})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def oidc(token: str, **more: str) -> dict[str, Any]:
    config = {"idp-issuer-url": "https://127.0.0.1:1", "client-id": "a", "client-secret": SECRET, "id-token": token}
    return {"auth-provider": {"name": "oidc", "config": {**config, **more}}}


TOKEN_FILE: Final = {"tokenFile": "token"}
RELATIVE: Final = {"client-certificate": "c.pem", "client-key": "c.key"}
BOB: Final = {"token": SECRET, "as": "bob", "as-groups": ["x", "y"]}
USERS: Final = (
    asks("no user", document({})),
    asks("user that is missing", document(users=[])),
    asks("user that is not set", document(contexts=[{"name": "a", "context": {"cluster": "a"}}])),
    asks("user that is null", document(users=[{"name": "a", "user": None}])),
    case("client certificate", document(CERTIFICATE)),
    case("client certificate as data", document(CERTIFICATE_DATA)),
    case("client certificate and token", document({**CERTIFICATE, "token": f"{SECRET}-a"})),
    case("client certificate as file and data", document({**CERTIFICATE, **CERTIFICATE_DATA})),
    case("client certificate without a key", document({"client-certificate": "$PKI/client.pem"})),
    asks("key without a client certificate", document({"client-key": "$PKI/client.key"})),
    case("client certificate with the key of another", document({**CERTIFICATE, "client-key": "$PKI/other.key"})),
    case("client certificate with an encrypted key", document({**CERTIFICATE, "client-key": "$PKI/encrypted.key"})),
    case("client certificate that is no file", document({**CERTIFICATE, "client-certificate": "none"})),
    case("relative client certificate", document(RELATIVE), files={"c.pem": "$CERT_PEM", "c.key": "$KEY_PEM"}),
    case("token file", document(TOKEN_FILE), files={"token": f"{SECRET}-file\n"}),
    case("token file wins over a token", document({"token": SECRET, **TOKEN_FILE}), files={"token": f"{SECRET}-file"}),
    case("token beside a token file that is missing", document({"token": SECRET, **TOKEN_FILE})),
    case("token file that is missing", document(TOKEN_FILE)),
    case("token file that is empty", document(TOKEN_FILE), files={"token": ""}),
    case("token with a line break inside", document({"token": f"{SECRET}\nx"})),
    case(
        "token with a line break at its end",
        document({"token": f"{SECRET}\n"}),
        differs="a copied token often ends with a line break, which is harmless",
        ours="https GET /version auth=Bearer s3cr3t cn=None sni=None as=[]",
    ),
    case("password", document(BASIC)),
    case("user without a password", document({"username": "jane"})),
    asks("password without a user", document({"password": SECRET})),
    case("password and token", document({**BASIC, "token": SECRET})),
    case("password and token file", document({**BASIC, **TOKEN_FILE}), files={"token": SECRET}),
    case("password and client certificate", document({**BASIC, **CERTIFICATE})),
    case("impersonation", document({**BOB, "as-uid": "7", "as-user-extra": {"Scope/a": ["1", "2"]}})),
    case("impersonation of a group alone", document({"token": SECRET, "as-groups": ["x"]})),
    case("impersonation with --as", document(BOB), flags={"--as": "eve"}),
    case("impersonation with --as-group", document(BOB), flags={"--as-group": "z"}),
    case("--as-group alone", flags={"--as-group": "z"}),
    case("OIDC", document(oidc(id_token(4102444800)))),
    case("OIDC beside a token", document({**oidc(id_token(4102444800)), "token": SECRET})),
    case("OIDC with an expired token", document(oidc(id_token(0)))),
    case("OIDC with an expired token that cannot be renewed", document(oidc(id_token(0), **{"refresh-token": SECRET}))),
    case("removed auth-provider", document({"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}})),
    case("unknown auth-provider", document({"auth-provider": {"name": "azure", "config": {}}})),
)


# Exec plugins


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
