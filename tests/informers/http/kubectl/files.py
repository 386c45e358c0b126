"""Several files, and files that are not valid."""

from typing import Any, Final

from tests.informers.http.kubectl.cases import (
    ANONYMOUS,
    ASKS,
    CLUSTER,
    PLUGIN,
    REFUSED,
    SECRET,
    TWO,
    Case,
    asks,
    case,
    document,
    named,
    plugin,
)


def merged(name: str, *files: str, **more: Any) -> Case:
    """A case with several files in KUBECONFIG, `0/config`, `1/config` and so on."""
    paths = ":".join(f"$DIR/{number}/config" for number in range(len(files)))
    contents = {f"{number}/config": text for number, text in enumerate(files)}
    return Case(name, {**contents, **more.pop("files", {})}, env={"KUBECONFIG": paths}, **more)


B: Final = named(
    clusters={"b": {**CLUSTER, "server": "$HTTPS/b"}},
    users={"b": {"token": f"{SECRET}-b"}},
    contexts={"b": {"cluster": "b", "user": "b"}},
    current_context="b",
)
FILES: Final = (
    merged("two files", document(), B),
    merged("two files, the second has the context", named(), B),
    merged("two files, --context of the second", document(), B, flags={"--context": "b"}),
    merged("two files with the same names", document(), document({"token": f"{SECRET}-2"})),
    merged(
        "two files, context in one and user in the other",
        document(users=[]),
        document({"token": f"{SECRET}-2"}, clusters=[]),
    ),
    merged(
        "two files, empty user first", document({}), document({"token": f"{SECRET}-2"}), differs=ASKS, ours=ANONYMOUS
    ),
    merged(
        "two files, relative token file in the second",
        document(users=[]),
        document({"tokenFile": "token"}),
        files={"0/token": f"{SECRET}-0", "1/token": f"{SECRET}-1"},
    ),
    merged(
        "two files, relative plugin in the second",
        document(users=[]),
        document(plugin()),
        files={"1/plugin.sh": PLUGIN},
    ),
    merged("two files, one is not YAML", document(), "{"),
    merged("two files, one has a wrong type", document(), document({"token": 7})),
    merged("two files, one is empty", "", document()),
    Case("two files, one is missing", {"config": document()}, env={"KUBECONFIG": "$DIR/none:$DIR/config"}),
    Case("two files, both missing", {}, env={"KUBECONFIG": "$DIR/none:$DIR/none2"}),
    Case("empty entry in the list", {"config": document()}, env={"KUBECONFIG": ":$DIR/config:"}),
    case("--kubeconfig wins over KUBECONFIG", env={"KUBECONFIG": "$DIR/other"}, files={"other": B}),
    Case(
        "list with a tilde",
        {"config": document()},
        env={"KUBECONFIG": "~/config"},
        differs="the home folder is what the user means",
        ours="https GET /version auth=Bearer s3cr3t-a cn=None sni=None as=[]",
    ),
    case("empty file", ""),
    case("file with a comment only", "# nothing\n"),
    case("not YAML", "{"),
    case("not YAML beside a token", "token: s3cr3t\n  x: [}"),
    case("list at the top", "[]"),
    case("text at the top", "just words"),
    case("two documents", document() + "\n---\n" + B),
    case(
        "YAML",
        "apiVersion: v1\n"
        "clusters:\n"
        "- {name: a, cluster: {server: $HTTPS, certificate-authority: $PKI/ca.pem}}\n"
        "users:\n"
        "- {name: a, user: {token: s3cr3t}}\n"
        "contexts:\n"
        "- {name: a, context: {cluster: a, user: a}}\n"
        "current-context: a\n",
    ),
    case(
        "name that is a date in YAML",
        "apiVersion: v1\nclusters: [{name: 2024-01-01, cluster: {server: $HTTPS, insecure-skip-tls-verify: true}}]\n"
        "users: [{name: a, user: {token: s3cr3t}}]\ncurrent-context: a\n"
        "contexts: [{name: a, context: {cluster: 2024-01-01, user: a}}]\n",
        differs="PyYAML reads such a text as a date; quotation marks make it a name",
        ours=REFUSED,
    ),
    case("other kind", document(kind="Pod")),
    case("other version", document(apiVersion="v2")),
    case("no kind and no version", document(kind=None, apiVersion=None)),
    case("unknown fields", document({"token": SECRET, "more": 1}, more=[1])),
    case("number as a token", document({"token": 7})),
    case("number as a token of another user", TWO.replace('"s3cr3t-b"', "7")),
    case("list as a user", document([])),
    case("text as clusters", document(clusters="a")),
    case("clusters that are null", document(clusters=None).replace("{", '{"clusters": null, ', 1)),
    case("server that is null", document(cluster={"server": None})),
    case("extensions of tools", document(extensions=[{"name": "minikube", "extension": {"x": 1}}], preferences={})),
    case("cluster named twice", TWO.replace('"name": "b", "cluster": {', '"name": "a", "cluster": {', 1)),
    case("user named twice", TWO.replace('"name": "b", "user": {', '"name": "a", "user": {', 1)),
    case("context named twice", TWO.replace('"name": "b", "context": {', '"name": "a", "context": {', 1)),
    case("no current context", document(**{"current-context": None})),
    case("no current context with --server", document(**{"current-context": None}), flags={"--server": "$HTTPS"}),
    case("current context that is missing", document(**{"current-context": "b"})),
    case("cluster that is missing", document(clusters=[])),
    case("cluster that is not set", document(contexts=[{"name": "a", "context": {"user": "a"}}])),
    case("context that is null", document(contexts=[{"name": "a", "context": None}])),
    asks("entry without a name", document(users=[{"user": {"token": SECRET}}])),
    case(
        "namespace that is no label",
        document(contexts=[{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "A/b"}}]),
    ),
    case("cluster of another context is broken", TWO.replace('"$HTTPS/b"', '""'), flags={"--context": "a"}),
    case("deeply nested", '{"x": ' * 5 + "1" + "}" * 5),
)
