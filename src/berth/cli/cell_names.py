"""How many cells there may be, and what each may be called."""

import re
from typing import Final

CELLS_MAX: Final = 64
CELL_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
CELL_NAME_IS: Final = "1 to 63 of a-z, 0-9, '_', '.' and '-', beginning with a letter or a digit"
