"""`python -m coilpack.cli`: the command where its script is not on the path."""

import sys

from coilpack.cli.main import main

sys.exit(main())
