"""`python -m fednode`: the same as the command `fednode`."""

import sys

from fednode.cli import main

sys.exit(main())
