"""OpenStack Keystone in one process, as its own WSGI application: FOLDER PORT.

With a new folder, its database, its keys and its first administrator are made first, in a fork: what that
registers cannot be registered again. ``FOLDER issue USER PROJECT`` prints a token that has expired a minute
ago, and ends. Run by an interpreter that finds Keystone, and nothing else of these tests.
"""

import datetime
import os
import socketserver
import sys
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

_, folder_name, *_words = sys.argv
# Keystone reads them as options of its own.
del sys.argv[1:]
FOLDER = Path(folder_name)
CONFIG = FOLDER / "keystone.conf"
PREPARED = FOLDER / "prepared"
os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(CONFIG)

import keystone.server  # noqa: E402
from keystone.cmd.bootstrap import Bootstrapper  # noqa: E402
from keystone.common.fernet_utils import FernetUtils  # noqa: E402
from keystone.common.provider_api import ProviderAPIs  # noqa: E402
from keystone.common.sql import upgrades  # noqa: E402
from keystone.server import backends  # noqa: E402
from keystone.server.wsgi import initialize_public_application  # noqa: E402

SETTINGS = """
[DEFAULT]
log_file = {folder}/keystone.log
[database]
connection = sqlite:///{folder}/keystone.db
[token]
provider = fernet
[fernet_tokens]
key_repository = {folder}/fernet
[fernet_receipts]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credential
[identity]
password_hash_rounds = 4
[cache]
enabled = true
backend = oslo_cache.dict
"""


class Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Handler(WSGIRequestHandler):
    def log_message(self, format: str, *words: object) -> None:
        pass


def prepare(port: int) -> None:
    keystone.server.configure(config_files=[str(CONFIG)])
    for name, group in (("fernet", "fernet_tokens"), ("credential", "credential")):
        keys = FernetUtils(str(FOLDER / name), 3, group)
        keys.create_key_directory()
        keys.initialize_key_repository()
    upgrades.offline_sync_database_to_version()
    first = Bootstrapper()
    first.admin_username = first.project_name = first.admin_role_name = "admin"
    first.admin_password = "secret"
    first.service_name, first.region_id = "keystone", "RegionOne"
    first.public_url = first.internal_url = first.admin_url = f"http://127.0.0.1:{port}/v3"
    first.immutable_roles = True
    first.bootstrap()
    PREPARED.touch()


def serve(port: int) -> None:
    if not PREPARED.exists():
        CONFIG.write_text(SETTINGS.format(folder=FOLDER))
        child = os.fork()
        if not child:
            try:
                prepare(port)
            finally:
                os._exit(0 if PREPARED.exists() else 1)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"Keystone could not be prepared: {FOLDER}/keystone.log")
    application = initialize_public_application()
    with make_server("127.0.0.1", port, application, Server, Handler) as server:
        server.serve_forever()


def issue(user: str, project: str) -> None:
    keystone.server.configure(config_files=[str(CONFIG)])
    backends.load_backends()
    ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    token = ProviderAPIs.token_provider_api.issue_token(
        user, ["password"], expires_at=ago.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), project_id=project
    )
    print(token.id)


if _words[0] == "issue":
    issue(*_words[1:])
else:
    serve(int(_words[0]))
