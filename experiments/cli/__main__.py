"""`python -m experiments.cli` is `aesjax`."""

import sys

from experiments.cli.main import main

sys.exit(main())
