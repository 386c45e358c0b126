"""`python -m tools.chart` writes the generated files. With `--check` it only prints the outdated files."""

import sys

from tools import generated
from tools.chart.generated import files
from tools.chart.helm import HelmMissing, find_helm

if __name__ == "__main__":
    sys.exit(generated.main(sys.argv[1:], lambda: files(find_helm(3)), "python -m tools.chart", (HelmMissing,)))
