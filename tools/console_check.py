"""Check the console's JavaScript with the TypeScript compiler: part of ``make lint``.

The compiler comes from npm, as pinned in tools/console. Where neither node nor apt-get is to be had, nothing
is checked, and that is said.
"""

import subprocess
import sys

from tests.packages import NPM_FOLDER, PackageMissing, require_npm_packages


def main() -> int:
    try:
        installed = require_npm_packages()
    except PackageMissing as error:
        print(f"console: not checked: {error}", file=sys.stderr)
        return 0
    return subprocess.run([installed / ".bin" / "tsc", "--project", NPM_FOLDER], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
