"""OpenStack Glance in one process, as its own WSGI application: FOLDER PORT KEYSTONE USER PASSWORD PROJECT.

With a new folder, its database is made first. Images are files in the folder. Run by an interpreter that
finds Glance, and nothing else of these tests.
"""

import os
import socketserver
import sys
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

_, folder_name, _port, _keystone, _user, _password, _project = sys.argv
# Glance reads them as options of its own.
del sys.argv[1:]
FOLDER = Path(folder_name)
# Where pip puts it beside the packages.
_PASTE = Path(os.environ["PYTHONPATH"]) / "etc" / "glance" / "glance-api-paste.ini"
CONFIG = FOLDER / "glance-api.conf"
SETTINGS = f"""
[DEFAULT]
log_file = {FOLDER}/glance.log
enabled_backends = files:file
[database]
connection = sqlite:///{FOLDER}/glance.db
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {FOLDER}/images
[os_glance_staging_store]
filesystem_store_datadir = {FOLDER}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {FOLDER}/tasks
[paste_deploy]
flavor = keystone
config_file = {_PASTE}
[keystone_authtoken]
auth_type = password
auth_url = {_keystone}
www_authenticate_uri = {_keystone}
username = {_user}
password = {_password}
project_name = {_project}
user_domain_id = default
project_domain_id = default
"""
CONFIG.write_text(SETTINGS)
os.environ["OS_GLANCE_CONFIG_DIR"] = str(FOLDER)

import glance.cmd.manage  # noqa: E402
from glance.common.wsgi_app import init_app  # noqa: E402


class Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Handler(WSGIRequestHandler):
    def log_message(self, format: str, *words: object) -> None:
        pass


def prepare() -> None:
    """Make the database, in a fork: the options of this command cannot be registered beside the server's."""
    child = os.fork()
    if not child:
        sys.argv[1:] = ["--config-file", str(CONFIG), "db", "sync"]
        try:
            glance.cmd.manage.main()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


if not (FOLDER / "glance.db").exists():
    prepare()
with make_server("127.0.0.1", int(_port), init_app(), Server, Handler) as server:
    server.serve_forever()
