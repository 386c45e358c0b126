# Requests the metrics page of a release. It runs as `python -c`; its argument is the URL of the page.
import ssl
import sys
import time
import urllib.error
import urllib.request

url, timeout_s = sys.argv[1], 60.0
# The certificate is not verified: it may be self-signed, and the request contains no secret.
unverified = ssl.create_default_context()
unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
deadline = time.monotonic() + timeout_s
while True:
    try:
        with urllib.request.urlopen(url, timeout=5, context=unverified) as answer:
            page = answer.read().decode()
        problem = (
            "" if "controller_runtime_max_concurrent_reconciles" in page else f"{url} is not a metrics page of vmherd"
        )
    except urllib.error.HTTPError as error:
        problem = "" if error.code == 401 else f"{url}: {error}"
    except OSError as error:
        problem = f"{url}: {error}"
    if not problem:
        print(f"{url} answers")
        break
    if time.monotonic() > deadline:
        sys.exit(problem)
    time.sleep(1)
