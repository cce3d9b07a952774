"""python -m geoshrink_bench run SUITE: the same as `geoshrink bench run SUITE`."""

import sys

from geoshrink.cli import main

sys.exit(main(["bench", *sys.argv[1:]]))
