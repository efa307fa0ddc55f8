"""Serve Berth for the conformance tests: ``PORT DIR`` on the command line.

Turns the CONFORMANCE_* settings (see README.md) into a configuration and a policy file under DIR, then is
``berth serve`` on 127.0.0.1:PORT.
"""

import os
import sys
from pathlib import Path

from berth.api.kernel.auth.rules import RULES
from berth.cli import main as berth


def main() -> int:
    port, directory = sys.argv[1], Path(sys.argv[2]).resolve()
    policy = os.environ.get("CONFORMANCE_POLICY", "legacy")
    config, policy_file = directory / "berth.toml", directory / "policy.yaml"
    lines = [
        # The tests know how many candidates there are: upstream has no cap by default.
        "max_allocation_candidates = -1",
        f'policy_file = "{policy_file}"',
        f'policy_defaults = "{"secure" if policy == "secure" else "legacy"}"',
    ]
    if origin := os.environ.get("CONFORMANCE_CORS_ALLOWED_ORIGIN"):
        lines.append(f'cors_allowed_origins = ["{origin}"]')
        lines.append(f'cors_allow_headers = ["{os.environ["CONFORMANCE_CORS_ALLOW_HEADERS"]}"]')
    config.write_text("\n".join(lines) + "\n")
    # Every rule that guards an operation; admin_api is only a building block of those.
    opened = [rule.name for rule in RULES if policy == "open" and rule.name != "admin_api"]
    policy_file.write_text("".join(f'"{name}": "@"\n' for name in opened))
    database = f"sqlite:///{directory / 'berth.db'}"
    words = ["serve", "--listen", f"127.0.0.1:{port}", "--database", database, "--auth", "noauth"]
    return berth([*words, "--config", str(config)])


if __name__ == "__main__":
    sys.exit(main())
