"""``python -m berth.cli``, where the ``berth`` script is not on the path."""

import sys

from berth.cli import main

sys.exit(main())
