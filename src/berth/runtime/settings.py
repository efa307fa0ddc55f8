"""Every setting of Berth, and where its value comes from.

One class is the table: a field's name, type, default, limits and help are the setting; flags, environment
variables, the file's keys and the documentation all follow from it. (Discovery has another table, of the same
make: ``agent/discovery/settings.py``.) Each value of a ``Settings`` is valid by
itself; ``conflicts`` checks that they go together.

Values come from defaults, a TOML file, BERTH_* variables and the command line; later ones win. Nothing is
ignored: a key or variable that is not a setting is refused by name. The refusal of a value says what was
given, what is allowed and where it was given. A file with a secret in it is refused if anybody but its owner
can read or write it.
"""

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json import JSONDecoder
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from berth.runtime.secrets import refuse_others

_PREFIX: Final = "BERTH_"
CONFIG_VARIABLE: Final = "BERTH_CONFIG"
_OF_OTHER_COMMANDS: Final = frozenset(
    ("BERTH_AGENT_TOKEN", "BERTH_PLACEMENT_TOKEN", "BERTH_TOKEN", "BERTH_URL")
)
"""Variables that are no settings: cells, agents and the commands that ask a region read them."""

_KUBERNETES: Final = re.compile(
    r"BERTH_(\w+_)?(SERVICE_HOST=|SERVICE_PORT(_\w+)?=\d|PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://"
    r"|PORT_\d+_(TCP|UDP|SCTP)_(ADDR|PORT|PROTO)=)"
)
"""What Kubernetes puts into every container for each service whose name begins with "berth", NAME=VALUE."""

_TRUE: Final = frozenset(("true", "yes", "on", "1"))
_FALSE: Final = frozenset(("false", "no", "off", "0"))
_PASSWORD_OPTION: Final = re.compile(r"(password=)[^&\s'\"]*", re.IGNORECASE)
_BROKEN_URL: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*:/?)[^\"{}\[\]]*@", re.IGNORECASE)
_ZERO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_DAY_S: Final = 86400
_NAMES_SHOWN: Final = 20
_QUOTA_MAX: Final = 2**31 - 1


class About(msgspec.Struct, frozen=True):
    """What a field's type does not say. ``check`` returns what is wrong with a value, or None."""

    help: str
    low: float | None = None
    high: float | None = None
    check: Callable[[Any], str | None] | None = None
    secret: bool = False
    metavar: str | None = None
    """What its value is called in help; if None, that follows from its name and type."""


def _check_listen(value: str) -> str | None:
    host, _, port = value.rpartition(":")
    if not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        return "HOST:PORT is expected, an IPv6 address in brackets: 127.0.0.1:8778 or [::1]:8778"
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        return "the port must be a number from 1 to 65535"
    return None


_PUBLIC_URL: Final = re.compile(r"https?://[A-Za-z0-9.\-_~%\[\]:]+(/[A-Za-z0-9.\-_~%/]*[A-Za-z0-9.\-_~%])?")


def _check_public_url(value: str) -> str | None:
    if _PUBLIC_URL.fullmatch(value):
        return None
    return "expected http:// or https://, a host, and optionally a path without a slash at its end"


PORT_FIELD: Final = "{port}"
_PORT_URL: Final = re.compile(r"https?://[A-Za-z0-9.\-_\[\]:]+/[A-Za-z0-9.\-_~%/]*")


def _check_port_url(value: str) -> str | None:
    if _PORT_URL.fullmatch(value.replace(PORT_FIELD, "")) and value.count(PORT_FIELD) == 1:
        return None
    return (
        "expected http:// or https://, a host without user and password, and a path without a query that has "
        "{port} in it once: https://neutron:9696/v2.0/ports/{port}"
    )


_TRACE_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9.\-_\[\]:]+(/[A-Za-z0-9.\-_~%/]*[A-Za-z0-9.\-_~%])?")
TRACES_PATH: Final = "/v1/traces"


def _check_trace_endpoint(value: str) -> str | None:
    if value.endswith(TRACES_PATH):
        return f"{TRACES_PATH} is appended to it: leave it out"
    if _TRACE_ENDPOINT.fullmatch(value):
        return None
    return (
        "expected http:// or https://, a host without user and password, and optionally a path without a "
        "slash at its end: http://127.0.0.1:4318"
    )


def _check_cap(value: int) -> str | None:
    return "with 0 no query could return a candidate; use -1 for no limit" if value == 0 else None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    # -- serving --
    listen: Annotated[str, About("address to serve on, HOST:PORT", check=_check_listen)] = "127.0.0.1:8778"
    public_url: Annotated[
        str | None,
        About(
            "URL by which clients reach this server, used in links; if unset, links use the request's Host "
            "header, and https if a proxy sets X-Forwarded-Proto to https",
            check=_check_public_url,
        ),
    ] = None
    database: Annotated[
        str,
        About(
            "database of the journal: sqlite:///PATH, or postgresql:// or mysql://USER:PASSWORD@HOSTS/NAME"
        ),
    ] = "sqlite:///berth.db"
    database_outage_seconds: Annotated[
        int, About("how long requests wait for an unavailable database before they get 503", 0, 300)
    ] = 10
    snapshot_every_batches: Annotated[
        int, About("number of journal appends between snapshots", 100, 10_000_000)
    ] = 20_000
    journal_keep_batches: Annotated[
        int,
        About(
            "minimum number of appends kept in the journal, for readers of the event feed", 0, 1_000_000_000
        ),
    ] = 100_000
    workers: Annotated[int, About("server processes", 1, 64)] = 1
    shutdown_seconds: Annotated[
        int, About("time that requests in flight get to finish during shutdown", 1, 3600)
    ] = 30
    worker_hung_seconds: Annotated[
        int, About("a worker without a heartbeat for this long is killed and replaced", 5, 3600)
    ] = 60

    # -- authentication and policy --
    auth: Annotated[
        Literal["noauth", "tokens", "keystone"],
        About(
            "how tokens are validated: noauth accepts every token, tokens uses a file, keystone asks Keystone"
        ),
    ] = "noauth"
    allow_remote_noauth: Annotated[
        bool, About("allow auth=noauth on an address that other machines can reach")
    ] = False
    tokens_file: Annotated[str | None, About("TOML file of tokens, for auth=tokens")] = None
    policy_file: Annotated[str | None, About("policy.yaml with the rules that override the defaults")] = None
    policy_defaults: Annotated[
        Literal["legacy", "secure"],
        About(
            "defaults of rules that the policy file does not set; secure: oslo.policy's enforce_new_defaults"
        ),
    ] = "legacy"

    # -- keystone --
    keystone_auth_url: Annotated[str | None, About("Keystone's URL, such as https://keystone:5000/v3")] = None
    keystone_username: Annotated[str | None, About("Berth's own user in Keystone")] = None
    keystone_password: Annotated[str | None, About("password of that user", secret=True)] = None
    keystone_project_name: Annotated[str | None, About("project of that user")] = None
    keystone_user_domain_name: Annotated[str, About("domain of that user")] = "Default"
    keystone_project_domain_name: Annotated[str, About("domain of that project")] = "Default"
    keystone_cafile: Annotated[str | None, About("CA file to verify Keystone's certificate with")] = None
    keystone_insecure: Annotated[bool, About("do not verify Keystone's certificate")] = False
    keystone_cache_seconds: Annotated[int, About("how long a validated token is cached", 0, _DAY_S)] = 300
    keystone_timeout_seconds: Annotated[int, About("timeout of a request to Keystone", 1, 300)] = 10

    # -- allocation candidates --
    randomize_allocation_candidates: Annotated[
        bool, About("return a random choice of the candidates instead of the first ones")
    ] = False
    max_allocation_candidates: Annotated[
        int, About("maximum number of candidates of one query; -1: no limit", -1, 10_000_000, _check_cap)
    ] = 10_000
    allocation_candidates_generation_strategy: Annotated[
        Literal["breadth-first", "depth-first"],
        About(
            "breadth-first takes candidates from all hosts in turn, depth-first takes all of one host first"
        ),
    ] = "breadth-first"

    # -- the scheduler --
    scheduler_filters: Annotated[
        tuple[str, ...], About("enabled filters, in the order in which explanations list them")
    ] = (
        "enabled",
        "host_state",
        "cell",
        "zone",
        "aggregate_metadata",
        "project_isolation",
        "trait_isolation",
        "architecture",
        "hypervisor_type",
        "image_isolation",
        "ignored",
        "host_names",
        "same_host",
        "different_host",
        "group_policy",
    )
    scheduler_weighers: Annotated[
        tuple[str, ...],
        About("enabled weighers, each as NAME=MULTIPLIER; a negative multiplier inverts the weigher"),
    ] = (
        "cpu=1.0",
        "memory=1.0",
        "disk=1.0",
        "soft_affinity=2.0",
        "spread=2.0",
        "scarce_devices=4.0",
        "build_failures=100.0",
    )
    scheduler_subset_size: Annotated[
        int, About("number of best hosts among which one is chosen at random", 1, 10_000)
    ] = 1
    pci_aliases: Annotated[
        tuple[str, ...],
        About(
            "devices that flavors ask for with pci_passthrough:alias, each a JSON object as in nova.conf: "
            "name, vendor_id and product_id or resource_class, traits, numa_policy"
        ),
    ] = ()
    device_profiles: Annotated[
        tuple[str, ...],
        About(
            "device profiles that flavors name with accel:device_profile, each a JSON object: name, and "
            "groups of resources:CLASS and trait:TRAIT"
        ),
    ] = ()

    # -- servers --
    cells: Annotated[
        tuple[str, ...],
        About("cells of the region, each as NAME=DATABASE; without cells the servers API is off"),
    ] = ()
    conflict_policy: Annotated[
        Literal["fail", "retry", "merge"],
        About("what an operation does when another client has changed the server's allocations"),
    ] = "fail"
    conflict_repeat: Annotated[
        Literal["merge", "refuse"],
        About(
            "with conflict_policy=fail, what happens to a request that is sent again after the conflict was "
            "reported: merge continues and keeps what was added, refuse answers 409 until the doctor has "
            "repaired the server"
        ),
    ] = "merge"
    build_attempts_max: Annotated[
        int, About("maximum number of hosts on which a build is attempted, including the first", 1, 20)
    ] = 3
    resize_in_place: Annotated[bool, About("allow a resize to stay on the same host")] = True
    cross_cell_moves: Annotated[
        bool,
        About(
            "allow a resize or a cold migration to go to another cell, where its own has no host for it or a "
            "host there is named; who may is said by the policy rule compute:servers:resize:cross_cell"
        ),
    ] = False
    shelve_offload: Annotated[
        bool,
        About("offload a server from its host as soon as it is shelved, without a shelveOffload request"),
    ] = True
    reclaim_instance_interval: Annotated[
        int,
        About(
            "for how many seconds a server that is deleted is only shut down and can be restored; 0 deletes "
            "it at once",
            0,
            31_536_000,
        ),
    ] = 0

    deleted_servers_seconds: Annotated[
        int,
        About(
            "for how many seconds administrators can list a server that was deleted; the last 1,000 are kept "
            "at most",
            0,
            31_536_000,
        ),
    ] = 86_400

    # -- images --
    image_folder: Annotated[
        str,
        About("folder of the contents of images; all servers of a region must have the same one"),
    ] = "images"
    image_bytes_max: Annotated[int, About("maximum size of one image, in bytes", 1 << 20, 1 << 50)] = 64 << 30
    images_bytes_max: Annotated[
        int, About("maximum size of all images of the region together, in bytes", 1 << 20, 1 << 60)
    ] = 1 << 40

    image_endpoint: Annotated[
        str | None,
        About(
            "URL of a Glance whose images servers are made from, such as https://glance:9292; /image is off "
            "then; if unset, images are kept here, unless auth=keystone",
            check=_check_public_url,
            metavar="URL",
        ),
    ] = None
    image_endpoint_cafile: Annotated[
        str | None, About("CA file to verify the certificate of that Glance with")
    ] = None
    image_endpoint_timeout_seconds: Annotated[
        int, About("how long a request waits for that Glance, repeated attempts included", 1, 60)
    ] = 10

    # -- ports --
    port_source_url: Annotated[
        str | None,
        About(
            "where a port of a server is read, with {port} for its id, such as "
            "https://neutron:9696/v2.0/ports/{port}; if unset, servers have no ports",
            check=_check_port_url,
        ),
    ] = None
    port_source_cafile: Annotated[
        str | None, About("CA file to verify the certificate of the port source with")
    ] = None
    port_source_headers_file: Annotated[
        str | None,
        About(
            "file of headers to send to the port source, NAME: VALUE in a line, such as X-Auth-Token; it is "
            "read for every request; if unset, with auth=keystone, a token of Berth's own user is sent"
        ),
    ] = None
    port_source_timeout_seconds: Annotated[
        int, About("how long a request waits for the port source, repeated attempts included", 1, 60)
    ] = 5

    # -- quotas of projects without quotas of their own --
    quota_instances: Annotated[int, About("servers of a project; -1: no limit", -1, _QUOTA_MAX)] = 10
    quota_cores: Annotated[int, About("vcpus of all servers; -1: no limit", -1, _QUOTA_MAX)] = 20
    quota_ram: Annotated[int, About("MiB of memory of all servers; -1: no limit", -1, _QUOTA_MAX)] = 51_200
    quota_metadata_items: Annotated[
        int, About("metadata items of one server; -1: no limit", -1, _QUOTA_MAX)
    ] = 128
    quota_server_groups: Annotated[
        int, About("server groups, not counting those of clusters; -1: no limit", -1, _QUOTA_MAX)
    ] = 10
    quota_server_group_members: Annotated[
        int, About("servers in one server group; -1: no limit", -1, _QUOTA_MAX)
    ] = 10
    quota_images: Annotated[int, About("images; -1: no limit", -1, _QUOTA_MAX)] = 100
    quota_image_size_total: Annotated[int, About("MiB of all images; -1: no limit", -1, _QUOTA_MAX)] = 10_240
    quota_clusters: Annotated[int, About("clusters; -1: no limit", -1, _QUOTA_MAX)] = 10
    quota_key_pairs: Annotated[int, About("key pairs of one user; -1: no limit", -1, _QUOTA_MAX)] = 100

    # -- the Placement API --
    incomplete_consumer_project_id: Annotated[
        str, About("project of allocations that are written without one, before microversion 1.8")
    ] = _ZERO_UUID
    incomplete_consumer_user_id: Annotated[
        str, About("user of allocations that are written without one, before microversion 1.8")
    ] = _ZERO_UUID
    cors_allowed_origins: Annotated[
        tuple[str, ...], About("origins that may call the API by CORS; empty: CORS is off")
    ] = ()
    cors_allow_headers: Annotated[tuple[str, ...], About("request headers that those origins may send")] = ()

    # -- limits --
    connections_max: Annotated[
        int,
        About(
            "maximum number of connections per worker; at the limit, new ones replace idle ones",
            16,
            65536,
        ),
    ] = 4096
    connections_per_peer_max: Annotated[
        int,
        About(
            "maximum number of connections from one address per worker, addresses of this machine excepted; "
            "0: no limit, needed behind a proxy on another machine",
            0,
            65536,
        ),
    ] = 1024
    body_bytes_max: Annotated[int, About("maximum size of a request body, in bytes", 1024, 1 << 30)] = 4 << 20
    bodies_bytes_max: Annotated[
        int,
        About(
            "maximum bytes of all request bodies in flight per worker; bodies up to 16 KiB do not count",
            1 << 20,
            64 << 30,
        ),
    ] = 64 << 20
    request_providers_max: Annotated[int, About("maximum number of providers in one write", 1, 1_000_000)] = (
        5000
    )
    request_list_max: Annotated[
        int, About("maximum number of entries in one list of a write", 1, 100_000)
    ] = 5000
    request_allocations_max: Annotated[
        int,
        About(
            "maximum number of allocations and inventories in one write, each a resource class of a provider "
            "for a consumer",
            1,
            1_000_000,
        ),
    ] = 2000
    request_groups_max: Annotated[
        int, About("maximum number of request groups in one candidates query", 1, 128)
    ] = 64
    queue_commands_max: Annotated[
        int, About("maximum number of queued writes; more get 503", 1, 1_000_000)
    ] = 4096
    queue_bytes_max: Annotated[
        int, About("maximum bytes of queued writes; more get 503", 64 << 10, 1 << 40)
    ] = 64 << 20
    batch_commands_max: Annotated[
        int, About("maximum number of writes in one append to the journal", 1, 65536)
    ] = 512
    command_bytes_max: Annotated[
        int,
        About(
            "maximum bytes that one write adds to the journal; larger writes are refused", 64 << 10, 256 << 20
        ),
    ] = 8 << 20
    event_streams_max: Annotated[int, About("maximum number of open event streams per worker", 0, 10_000)] = (
        100
    )
    event_heartbeat_seconds: Annotated[
        int,
        About(
            "interval of heartbeat comments on an idle event stream; a client that does not read for as long "
            "is disconnected",
            1,
            300,
        ),
    ] = 15

    # -- telemetry --
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        About("lowest level to log; requests are logged at info"),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "text"], About("log format; auto is text on a terminal and json elsewhere")
    ] = "auto"
    trace_endpoint: Annotated[
        str | None,
        About(
            "URL of the collector that traces are sent to by OTLP over HTTP, such as http://127.0.0.1:4318; "
            f"{TRACES_PATH} is appended; needs the extra berth[otel]; if unset, nothing is traced",
            check=_check_trace_endpoint,
            metavar="URL",
        ),
    ] = None
    trace_ratio: Annotated[
        float,
        About("share of the requests without a traceparent header that begin a trace", 0, 1),
    ] = 1.0

    @property
    def listen_host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def listen_port(self) -> int:
        return int(self.listen.rpartition(":")[2])


class Setting(msgspec.Struct, frozen=True):
    """A row of the table, read off a field of Settings. ``kind`` is the type without ``| None``."""

    name: str
    kind: type[bool] | type[int] | type[float] | type[str] | type[tuple[str, ...]]
    default: Any
    about: About
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return _PREFIX + self.name.upper()

    @property
    def allowed(self) -> str:
        """Which values are valid, to finish the sentence "it must be ..."."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is int:
            return f"a whole number from {self.about.low} to {self.about.high}"
        if self.kind is float:
            return f"a number from {self.about.low} to {self.about.high}"
        return "a list of strings" if self.kind is tuple else "a string"


def _setting(name: str, annotated: Any, default: Any) -> Setting:
    declared, about = get_args(annotated)[:2]
    if get_origin(declared) is Literal:
        return Setting(name, str, default, about, get_args(declared))
    if type(None) in get_args(declared):
        declared = get_args(declared)[0]
    return Setting(name, get_origin(declared) or declared, default, about)


def read_table(kind: type[msgspec.Struct]) -> tuple[Setting, ...]:
    """The settings that a class declares, in its order. Every field has a type and an ``About``."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _setting(field.name, hints[field.name], field.default) for field in msgspec.structs.fields(kind)
    )


TABLE: Final = read_table(Settings)
"""All settings of a region, in the order of their declaration."""

BY_NAME: Final = {setting.name: setting for setting in TABLE}


def conflicts(settings: Settings) -> str | None:
    """Why these settings do not go together, though each is valid by itself; None if they do."""
    is_open = settings.auth == "noauth" and not settings.allow_remote_noauth
    if is_open and not is_loopback(settings.listen_host):
        return (
            f"listen: {settings.listen} can be reached by others, and auth=noauth accepts every token. "
            "Choose auth=tokens or auth=keystone, listen on 127.0.0.1, or set allow_remote_noauth"
        )
    if settings.bodies_bytes_max < settings.body_bytes_max:
        return "bodies_bytes_max, body_bytes_max: the limit of all bodies is less than that of one body"
    for name in ("port_source_cafile", "port_source_headers_file"):
        if getattr(settings, name) is not None and settings.port_source_url is None:
            return f"{name}: it has no meaning without port_source_url"
    if settings.image_endpoint_cafile is not None and settings.image_endpoint is None:
        return "image_endpoint_cafile: it has no meaning without image_endpoint"
    if settings.trace_endpoint is None and settings.trace_ratio != Settings().trace_ratio:
        return "trace_ratio: it has no meaning without trace_endpoint"
    if settings.auth == "tokens" and settings.tokens_file is None:
        return "tokens_file: required with auth=tokens"
    if settings.auth == "keystone":
        needed = ("keystone_auth_url", "keystone_username", "keystone_password", "keystone_project_name")
        missing = [name for name in needed if getattr(settings, name) is None]
        if missing:
            return f"{', '.join(missing)}: required with auth=keystone"
    return None


def redact_password(text: str) -> str:
    """A text with the password of a URL in it replaced. A password may hold any character, "@" and "/" too,
    so it reaches from the first colon behind the scheme to the last "@". A text that is no URL, because a
    slash is missing in it, has its password all the same."""
    before, scheme_end, rest = text.partition("://")
    credentials, at, behind = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    if scheme_end and at and colon:
        text = f"{before}://{user}:***@{behind}"
    elif not scheme_end:
        text = _BROKEN_URL.sub(r"\1***@", text)
    return _PASSWORD_OPTION.sub(r"\1***", text)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def cells_of(cells: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names and databases of the cells."""
    return [(name, database) for name, _, database in (cell.partition("=") for cell in cells)]


# -- sources ------------------------------------------------------------------------------------


class SettingsError(Exception):
    """The settings cannot be used. The message is complete, and meant for the operator."""


class Resolved(msgspec.Struct, frozen=True):
    """Settings, and where each that is not a default came from."""

    settings: Settings
    origins: dict[str, str]


def resolve(
    config_path: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Resolved:
    """All sources put together, or SettingsError. ``flags`` maps names of settings to given texts."""
    environ = environ or {}
    config_path = config_path or environ.get(CONFIG_VARIABLE) or None
    values, origins = gather(TABLE, config_path, environ, flags)
    return Resolved(Settings(**values), origins)


def gather(
    table: Sequence[Setting],
    config_path: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that the sources give to settings of a table, and where each came from; or SettingsError."""
    by_name = {setting.name: setting for setting in table}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}

    def take(setting: Setting, value: Any, origin: str) -> None:
        values[setting.name] = _check(setting, value, origin)
        origins[setting.name] = origin

    if config_path is not None:
        content, shared = _read_toml(config_path)
        for name, given in content.items():
            setting = _find_setting(by_name, name, given, config_path)
            take(setting, _from_toml(setting, given, config_path), config_path)
            if shared is not None and _is_secret(setting, values[name]):
                raise SettingsError(f"{shared}. It holds a secret: {name}")
    for setting, text in _variables(table, environ or {}):
        take(setting, _from_text(setting, text, setting.variable), setting.variable)
    for name, text in (flags or {}).items():
        setting = by_name[name]
        take(setting, _from_text(setting, text, setting.flag), setting.flag)
    return values, origins


def refuse_conflicts(resolved: Resolved) -> None:
    """SettingsError if settings do not go together; it names where they came from."""
    problem = conflicts(resolved.settings)
    if problem is None:
        return
    names = problem.partition(": ")[0].split(", ")
    origins = sorted({resolved.origins[name] for name in names if name in resolved.origins})
    raise SettingsError(problem + (f" (from {', '.join(origins)})" if origins else ""))


# -- the file -----------------------------------------------------------------------------------


def _read_toml(path: str) -> tuple[dict[str, Any], str | None]:
    """The content of the file, and why it may not hold a secret, if it may not."""
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file), refuse_others(path, file)
    except OSError as error:
        raise SettingsError(f"{path}: cannot read the settings: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: invalid TOML: {error}") from error


def _is_secret(setting: Setting, value: Any) -> bool:
    """Whether others must not read a value: a secret, or an address with a password in it."""
    texts = value if isinstance(value, tuple) else (value,)
    return setting.about.secret or any(
        redact_password(text) != text for text in texts if isinstance(text, str)
    )


def _find_setting(by_name: Mapping[str, Setting], name: str, given: Any, path: str) -> Setting:
    if name in by_name:
        return by_name[name]
    if isinstance(given, dict):
        raise SettingsError(f"{path}: unknown table [{name}]; settings are plain keys, without tables")
    raise SettingsError(f"{path}: unknown setting {name}{_hint(name, by_name)}")


def _from_toml(setting: Setting, given: Any, origin: str) -> Any:
    if setting.kind is tuple:
        if isinstance(given, list) and all(isinstance(item, str) for item in given):
            return tuple(given)
    elif setting.kind is float and type(given) is int:
        return float(given)
    # Every bool of Python is an int; a setting that wants a number does not want true.
    elif type(given) is setting.kind:
        return given
    raise _refusal(setting, given, f"it must be {setting.allowed}", origin)


# -- texts: the environment and the command line ------------------------------------------------


def _variables(table: Sequence[Setting], environ: Mapping[str, str]) -> Iterable[tuple[Setting, str]]:
    by_variable = {setting.variable: setting for setting in table}
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or variable in (CONFIG_VARIABLE, *_OF_OTHER_COMMANDS):
            continue
        if variable not in by_variable:
            if _KUBERNETES.match(f"{variable}={environ[variable]}"):
                continue
            hint = _hint(variable, [*by_variable, CONFIG_VARIABLE])
            raise SettingsError(f"environment: unknown variable {variable}{hint}")
        yield by_variable[variable], environ[variable]


def _split_list(text: str) -> Iterator[str]:
    """The items of a list, which have commas between them. Those in a JSON object are its own."""
    while text := text.lstrip():
        size = _measure_object(text)
        rest, _, following = text[size:].partition(",")
        yield text[:size] + rest
        text = following


def _measure_object(text: str) -> int:
    """The length of the JSON object that a text begins with; of all of it, if it only looks like one."""
    if not text.startswith("{"):
        return 0
    try:
        return JSONDecoder().raw_decode(text)[1]
    except (ValueError, RecursionError):
        return len(text)


def _from_text(setting: Setting, text: str, origin: str) -> Any:
    if setting.kind is tuple:
        return tuple(item for item in map(str.strip, _split_list(text)) if item)
    if setting.kind is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise _refusal(setting, text, f"it must be {setting.allowed}", origin)
    if setting.kind in (int, float):
        try:
            return setting.kind(text)
        except ValueError:
            raise _refusal(setting, text, f"it must be {setting.allowed}", origin) from None
    return text


# -- both ---------------------------------------------------------------------------------------


def _check(setting: Setting, value: Any, origin: str) -> Any:
    about = setting.about
    if setting.choices and value not in setting.choices:
        raise _refusal(setting, value, f"it must be {setting.allowed}", origin)
    if about.low is not None and about.high is not None and not about.low <= value <= about.high:
        raise _refusal(setting, value, f"it must be {setting.allowed}", origin)
    if value == "":
        raise _refusal(setting, value, "it is empty; leave the setting out instead", origin)
    wrong = about.check(value) if about.check is not None else None
    if wrong is not None:
        raise _refusal(setting, value, wrong, origin)
    return value


def _refusal(setting: Setting, given: Any, why: str, origin: str) -> SettingsError:
    shown = "the value given" if setting.about.secret else redact_password(repr(given))
    return SettingsError(f"{setting.name}: {shown} is refused: {why} (from {origin})")


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    if close:
        return f"; did you mean {close[0]}?"
    is_short = len(list(known)) <= _NAMES_SHOWN
    return f"; there are {', '.join(known)}" if is_short else "; 'berth settings' lists all settings"
