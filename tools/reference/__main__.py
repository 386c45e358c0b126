"""`python -m tools.reference` writes the pages. With `--check` it writes nothing and prints the outdated pages."""

import sys

from tools import generated
from tools.reference.pages import pages

if __name__ == "__main__":
    sys.exit(generated.main(sys.argv[1:], pages, "make reference"))
