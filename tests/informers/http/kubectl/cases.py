"""Kubeconfigs of all kinds, for the comparison with kubectl.

In each text, the harness replaces $HTTPS and $HTTP with the addresses of recording servers, $PROXY with the address of
a proxy, $DIR with the folder of the case, $PKI with a folder of certificates, and $CA64, $CERT64 and $KEY64 with
certificates in base64.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

ASKS: Final = "kubectl asks its user for a name and a password; our client has no credentials to send"
ANONYMOUS: Final = "https GET /version auth=None cn=None sni=None as=[]"
SECRET: Final = "s3cr3t"
"""A part of each password and of each token. No error message may contain it."""

REFUSED: Final = "refused"
V1: Final = "client.authentication.k8s.io/v1"


class Case(NamedTuple):
    """One call of kubectl. `files` has their contents by name; `flags` and `env` are those of the call.

    `differs` is the reason why our client does something else than kubectl, and `ours` is what it does.
    """

    name: str
    files: Mapping[str, str]
    flags: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    differs: str = ""
    ours: str = ""


def document(
    user: Any = None, cluster: Any = None, *, server: str = "$HTTPS", trusted: bool = True, **more: Any
) -> str:
    """A kubeconfig with one cluster, one user and one context, each of the name `a`."""
    cluster = {"server": server, **({"certificate-authority": "$PKI/ca.pem"} if trusted else {}), **(cluster or {})}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"token": f"{SECRET}-a"} if user is None else user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    return json.dumps({key: value for key, value in {**config, **more}.items() if value is not None})


def case(name: str, text: str | None = None, **more: Any) -> Case:
    """A case with one file, which is the argument of --kubeconfig."""
    files = {"config": document() if text is None else text, **more.pop("files", {})}
    flags = {"--kubeconfig": "$DIR/config", **more.pop("flags", {})}
    return Case(name, files, flags, **more)


def asks(name: str, text: str) -> Case:
    """A case for which kubectl asks its user for a name and a password."""
    return case(name, text, differs=ASKS, ours=ANONYMOUS)


def plugin(answer: Any = None, **settings: Any) -> dict[str, Any]:
    """A user with an exec plugin. It writes what it gets into the file `infos`, and prints its first argument."""
    status = {"token": f"{SECRET}-plugin"} if answer is None else answer
    printed = status if isinstance(status, str) else credential(status)
    return {
        "exec": {"apiVersion": V1, "command": "./plugin.sh", "args": [printed], "interactiveMode": "Never", **settings}
    }


def credential(status: Any, **more: Any) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status, **more})


PLUGIN: Final = '#!/bin/sh\nprintf "%s\\0" "$KUBERNETES_EXEC_INFO" >> "$DIR/infos"\nprintf "%s" "$1"\n'
RUN: Final = {"files": {"plugin.sh": PLUGIN}}
CERTIFICATE: Final = {"client-certificate": "$PKI/client.pem", "client-key": "$PKI/client.key"}
CERTIFICATE_DATA: Final = {"client-certificate-data": "$CERT64", "client-key-data": "$KEY64"}
BASIC: Final = {"username": "jane", "password": SECRET}


def named(**sections: Any) -> str:
    """A kubeconfig with these entries, each a section and a mapping of names to contents."""
    parts = {"clusters": "cluster", "users": "user", "contexts": "context"}
    lists = {
        section: [{"name": n, part: v} for n, v in sections.pop(section, {}).items()] for section, part in parts.items()
    }
    return json.dumps({**lists, **{key.replace("_", "-"): value for key, value in sections.items()}})


CLUSTER: Final = {"server": "$HTTPS", "certificate-authority": "$PKI/ca.pem"}
TWO: Final = named(
    clusters={"a": CLUSTER, "b": {**CLUSTER, "server": "$HTTPS/b"}},
    users={"a": {"token": f"{SECRET}-a"}, "b": {"token": f"{SECRET}-b"}},
    contexts={"a": {"cluster": "a", "user": "a"}, "b": {"cluster": "b", "user": "b"}},
    current_context="a",
)
