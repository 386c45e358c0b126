"""Users with certificates, tokens, passwords and impersonation."""

import json
from base64 import urlsafe_b64encode
from typing import Any, Final

from tests.informers.http.kubectl.cases import BASIC, CERTIFICATE, CERTIFICATE_DATA, SECRET, asks, case, document


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
