"""Addresses of servers, with and without encryption, settings of TLS, flags of the call, and proxies."""

from typing import Final

from tests.informers.http.kubectl.cases import (
    ANONYMOUS,
    ASKS,
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

ADDRESSES: Final = (
    case("https"),
    case("https in upper case", document(server="HTTPS://$HOST")),
    case("https in upper case, server untrusted", document(server="HTTPS://$HOST", trusted=False)),
    case("https, server untrusted", document(trusted=False)),
    case("https, other authority", document(cluster={"certificate-authority": "$PKI/other.pem"})),
    case("trailing slash", document(server="$HTTPS/")),
    case("path", document(server="$HTTPS/k8s/clusters/c-1")),
    case("path with a trailing slash", document(server="$HTTPS/k8s/")),
    case("path with double slashes", document(server="$HTTPS//k8s//x//")),
    case("path with dots", document(server="$HTTPS/k8s/../x")),
    case("query and fragment", document(server="$HTTPS/k8s?a=b#c")),
    case("query without a path", document(server="$HTTPS?a=b")),
    case("name of the server", document(server="https://localhost:$PORT")),
    case("IPv6", document(server="https://[::1]:$PORT6")),
    *(
        case(name, document({}, server=f"https://{info}@$HOST"), differs=ASKS, ours=ANONYMOUS.replace("None", sent, 1))
        for name, info, sent in (
            ("userinfo", "jane:s3cr3t", "Basic amFuZTpzM2NyM3Q="),
            ("escaped userinfo", "jane%40x:s3cr3t%3A", "Basic amFuZUB4OnMzY3IzdDo="),
        )
    ),
    case("userinfo beside a token", document(server="https://jane:s3cr3t@$HOST")),
    case("userinfo beside a client certificate", document(CERTIFICATE, server="https://jane:s3cr3t@$HOST")),
    case("space in the address", document(server="https://127.0.0.1 :$PORT")),
    case("line break in the address", document(server="https://127.0.0.1\n:$PORT")),
    case("backslash in the address", document(server="https://127.0.0.1:$PORT\\@localhost")),
    case("other scheme", document(server="ftp://$HOST")),
    case("no host", document(server="https://")),
    case("port out of range", document(server="https://127.0.0.1:99999")),
    case("port that is no number", document(server="https://127.0.0.1:s3cr3t")),
    case("empty server", document(server="")),
    case(
        "no scheme",
        document(server="127.0.0.1:$HTTP_PORT"),
        differs="kubectl guesses http; a guess would send requests without encryption",
        ours=REFUSED,
    ),
)
PLAIN: Final = (
    case("http without credentials", document({}, server="$HTTP", trusted=False)),
    case("http with a token", document(server="$HTTP", trusted=False)),
    case("http in upper case with a token", document(server="HTTP://127.0.0.1:$HTTP_PORT", trusted=False)),
    case("http with --token", document(server="$HTTP"), flags={"--token": f"{SECRET}-flag"}),
    case("http with a client certificate", document(CERTIFICATE, server="$HTTP")),
    case("http with a password", document(BASIC, server="$HTTP")),
    case("http with an exec plugin", document(plugin(), server="$HTTP"), **RUN),
    case("http with --server", flags={"--server": "$HTTP"}),
    case("http with an authority that is no file", document(server="$HTTP", cluster={"certificate-authority": "none"})),
    case("http with a token and a password", document({"token": SECRET, **BASIC}, server="$HTTP", trusted=False)),
    case("http with impersonation", document({"as": "bob", "token": SECRET}, server="$HTTP")),
    case(
        "http with userinfo",
        document({}, server="http://jane:s3cr3t@127.0.0.1:$HTTP_PORT"),
        differs="kubectl sends the password of the address without encryption",
        ours="http GET /version auth=None cn=None sni=None as=[]",
    ),
)
TLS: Final = (
    case("authority as data", document(cluster={"certificate-authority-data": "$CA64"}, trusted=False)),
    case("authority as file and data", document(cluster={"certificate-authority-data": "$CA64"})),
    case("authority that is no file", document(cluster={"certificate-authority": "none"})),
    case("authority that is no certificate", document(cluster={"certificate-authority": "$PKI/client.key"})),
    case("authority as data that is no base64", document(cluster={"certificate-authority-data": "%"}, trusted=False)),
    case("authority that is empty", document(cluster={"certificate-authority": "empty"}), files={"empty": ""}),
    case(
        "authority that is an intermediate",
        document(cluster={"certificate-authority": "$PKI/middle.pem"}, server="https://127.0.0.1:$MIDDLE"),
    ),
    case("skip verification", document(cluster={"insecure-skip-tls-verify": True}, trusted=False)),
    case("skip verification beside an authority", document(cluster={"insecure-skip-tls-verify": True})),
    case(
        "skip verification beside an authority as data",
        document(cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": "$CA64"}, trusted=False),
    ),
    case("skip verification as a text", document(cluster={"insecure-skip-tls-verify": "true"}, trusted=False)),
    case("tls-server-name", document(cluster={"tls-server-name": "api.example.org"})),
    case("wrong tls-server-name", document(cluster={"tls-server-name": "other.example.org"})),
    case(
        "tls-server-name and skip verification",
        document(cluster={"tls-server-name": "x.example.org", "insecure-skip-tls-verify": True}, trusted=False),
    ),
    case(
        "--server beside a tls-server-name",
        document(cluster={"tls-server-name": "other.example.org"}),
        flags={"--server": "$HTTPS"},
    ),
    case(
        "relative authority", document(cluster={"certificate-authority": "sub/ca.pem"}), files={"sub/ca.pem": "$CA_PEM"}
    ),
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
