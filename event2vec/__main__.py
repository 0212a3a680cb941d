"""`python -m event2vec` is the same as `event2vec`."""

import sys

from event2vec.cli import main

sys.exit(main())
