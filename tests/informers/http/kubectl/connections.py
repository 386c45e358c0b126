"""Addresses of servers, with and without encryption, and settings of TLS."""

from typing import Final

from tests.informers.http.kubectl.cases import (
    ANONYMOUS,
    ASKS,
    BASIC,
    CERTIFICATE,
    REFUSED,
    RUN,
    SECRET,
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
