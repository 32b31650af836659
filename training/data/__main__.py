"""`python -m training.data` is `python -m training data`."""

import sys

from training.commands.data import main

sys.exit(main())
