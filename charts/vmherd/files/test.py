# Asks for the metrics page of a release. Runs as `python -c`, with the page's address after it.
import ssl
import sys
import time
import urllib.error
import urllib.request

url, patience_s = sys.argv[1], 60.0
# A certificate that the program made itself proves nothing, and there is nothing secret to send.
unverified = ssl.create_default_context()
unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
give_up = time.monotonic() + patience_s
while True:
    try:
        with urllib.request.urlopen(url, timeout=5, context=unverified) as answer:
            page = answer.read().decode()
        said = "" if "controller_runtime_max_concurrent_reconciles" in page else f"{url} is no metrics page of vmherd"
    except urllib.error.HTTPError as error:
        said = "" if error.code == 401 else f"{url}: {error}"
    except OSError as error:
        said = f"{url}: {error}"
    if not said:
        print(f"{url} answers")
        break
    if time.monotonic() > give_up:
        sys.exit(said)
    time.sleep(1)
