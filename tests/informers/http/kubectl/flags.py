"""Flags of the call, and proxies."""

from typing import Final

from tests.informers.http.kubectl.cases import (
    BASIC,
    CERTIFICATE,
    CERTIFICATE_DATA,
    REFUSED,
    RUN,
    SECRET,
    TWO,
    Case,
    case,
    document,
    plugin,
)

AUTHORITY: Final = {"--certificate-authority": "$PKI/ca.pem"}
CA: Final = {"certificate-authority": "$PKI/ca.pem"}
SKIP: Final = {"--insecure-skip-tls-verify": "true"}
SNI: Final = {"--tls-server-name": "localhost"}
PAIR: Final = {"--client-certificate": "$PKI/client.pem", "--client-key": "$PKI/client.key"}
TOKEN: Final = {"--token": f"{SECRET}-flag"}
SENT: Final = "https GET /version auth=Bearer s3cr3t-flag cn=None sni=None as=[]"
FLAGS: Final = (
    case("--token", flags=TOKEN),
    case("--token beside an exec plugin", document(plugin()), flags=TOKEN, **RUN),
    *(
        case(f"--token beside {name}", document(user), flags=TOKEN, files=files, differs=why, ours=SENT)
        for name, user, files, why in (
            ("a client certificate", CERTIFICATE, {}, "an API server prefers the certificate"),
            ("a token file", {"tokenFile": "token"}, {"token": f"{SECRET}-file"}, "kubectl's flag has no effect"),
            ("a password", BASIC, {}, "the token replaces all credentials of the kubeconfig, the password too"),
        )
    ),
    case("--server", document(server="https://127.0.0.1:1"), flags={"--server": "$HTTPS/x"}),
    case("--context", TWO, flags={"--context": "b"}),
    case("--context that is missing", TWO, flags={"--context": "c"}),
    case("--cluster", TWO, flags={"--cluster": "b"}),
    case("--user", TWO, flags={"--user": "b"}),
    case(
        "--cluster and --user without a context",
        TWO.replace('"current-context": "a"', '"x": 1'),
        flags={"--cluster": "b", "--user": "b"},
    ),
    case("--cluster that is missing", TWO, flags={"--cluster": "c"}),
    case("--user that is missing", TWO, flags={"--user": "c"}),
    *(
        case(f"{' and '.join(flags)} beside {name}", document(*parts, trusted=False), flags=flags)
        for name, parts, flags in (
            ("an authority that is no file", (None, {"certificate-authority": "no"}), AUTHORITY),
            ("the right one", (None, CA), {"--certificate-authority": "$PKI/other.pem"}),
            ("skipped verification", (None, {"insecure-skip-tls-verify": True}), AUTHORITY),
            ("an authority", (None, {"certificate-authority-data": "$CA64"}), SKIP),
            ("nothing", (None,), {**AUTHORITY, **SKIP}),
            ("nothing", (None,), AUTHORITY),
            ("a name in the kubeconfig", (None, {"tls-server-name": "no"}), {**AUTHORITY, **SNI}),
            ("a server", (None, {"tls-server-name": "no"}), {**AUTHORITY, "--server": "$HTTPS"}),
            ("a server", (None, {"tls-server-name": "no"}), {**AUTHORITY, **SNI, "--server": "$HTTPS"}),
            ("nothing", ({}, CA), PAIR),
            ("a pair as data", ({"client-certificate-data": "%", "client-key-data": "%"}, CA), PAIR),
            ("a pair as other data", (CERTIFICATE_DATA, CA), {"--client-key": "$PKI/client.key"}),
            ("no key", ({}, CA), {"--client-certificate": "$PKI/client.pem"}),
            ("a token", (None, CA), {"--as-uid": "7", "--as": "jane"}),
            ("no user", (None, CA), {"--as-uid": "7"}),
        )
    ),
    case("--kubeconfig with a list", flags={"--kubeconfig": "$DIR/config:$DIR/config"}),
    case("--kubeconfig that is missing", flags={"--kubeconfig": "$DIR/none"}),
    case("--kubeconfig that is a folder", flags={"--kubeconfig": "$DIR"}),
    Case("no kubeconfig", {}),
    Case("kubeconfig in the home folder", {".kube/config": document()}),
    case("proxy for https", document(cluster={"proxy-url": "$PROXY"})),
    case("proxy for http", document(server="$HTTP", cluster={"proxy-url": "$PROXY"})),
    case("proxy with a password", document(cluster={"proxy-url": "http://jane:s3cr3t@$PROXY_HOST"})),
    case("proxy of an unknown scheme", document(cluster={"proxy-url": "ftp://$PROXY_HOST"})),
    case("proxy without a scheme", document(cluster={"proxy-url": "$PROXY_HOST"})),
    case(
        "proxy of the scheme socks5",
        document(cluster={"proxy-url": "socks5://$SOCKS"}),
        differs="the HTTP library has no SOCKS",
        ours=REFUSED,
    ),
)
