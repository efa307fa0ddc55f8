"""What Tempest is told of a region that ``berth up`` runs: users, images and sizes, and what it can do."""

import configparser
import hashlib
import secrets
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import yaml

from tests.clouds import Cloud

PROJECTS: Final = 16
ADMINISTRATORS: Final = 8


class Account(NamedTuple):
    name: str
    project: str
    roles: tuple[str, ...]
    password: str

    def as_entry(self) -> str:
        """Its lines in the tokens file."""
        digest = hashlib.sha256(self.password.encode()).hexdigest()
        roles = ", ".join(f'"{role}"' for role in self.roles)
        return (
            f'\n[[token]]\ntoken = "sha256:{digest}"\nuser = "{self.name}"\n'
            f'project = "{self.project}"\nroles = [{roles}]\n'
        )

    def as_row(self) -> dict[str, Any]:
        """Its row in Tempest's file of accounts."""
        row: dict[str, Any] = {"username": self.name, "password": self.password}
        row |= {"project_name": self.project, "user_domain_name": "Default"}
        # Tempest asks for one role; those that it implies would make the account serve as another.
        return row | {
            "project_domain_name": "Default",
            "roles": [*self.roles][: 1 + ("service" in self.roles)],
        }


def make_accounts() -> list[Account]:
    """A member, a manager and a reader of each of some projects, and administrators. Tempest takes the first
    that is free of those that are not administrators, so members come first."""
    made = []
    for role, held, projects in (
        ("member", ("member", "reader"), [f"project-{n}" for n in range(PROJECTS)]),
        ("manager", ("manager", "member", "reader"), [f"project-{n}" for n in range(PROJECTS)]),
        ("reader", ("reader",), [f"project-{n}" for n in range(PROJECTS)]),
        ("admin", ("admin", "member", "reader"), [f"admin-{n}" for n in range(ADMINISTRATORS)]),
        ("service", ("service", "admin"), [f"service-{n}" for n in range(ADMINISTRATORS)]),
    ):
        made += [Account(f"{role}-of-{project}", project, held, _make_password()) for project in projects]
    return made


def _make_password() -> str:
    return secrets.token_urlsafe(24)


def prepare_region(cloud: Cloud, token: str, folder: Path) -> Path:
    """Give a running region users, images and sizes, and write Tempest's settings for it."""
    accounts = make_accounts()
    with (cloud.data / "tokens.toml").open("a") as file:
        file.writelines(account.as_entry() for account in accounts)
    (folder / "accounts.yaml").write_text(yaml.safe_dump([account.as_row() for account in accounts]))
    with httpx.Client(base_url=cloud.url, headers={"x-auth-token": token}, timeout=30) as client:
        _unlimit(client)
        flavors = [_create_flavor(client, f"tempest-{size}", size * 64, size) for size in (1, 2)]
        images = [_create_image(client, f"tempest-{n}") for n in range(2)]
    config = folder / "tempest.conf"
    with config.open("w") as file:
        _make_config(cloud.url, folder, flavors, images).write(file)
    return config


def _unlimit(client: httpx.Client) -> None:
    limits = {"instances": 100, "cores": 200, "ram": 512_000}
    body = {"quota_class_set": limits}
    client.put("/compute/v2.1/os-quota-class-sets/default", json=body).raise_for_status()


def _create_flavor(client: httpx.Client, name: str, ram: int, disk: int) -> str:
    body = {"flavor": {"name": name, "ram": ram, "disk": disk, "vcpus": 1}}
    answer = client.post("/compute/v2.1/flavors", json=body).raise_for_status()
    return str(answer.json()["flavor"]["id"])


def _create_image(client: httpx.Client, name: str) -> str:
    formats = {"disk_format": "raw", "container_format": "bare"}
    body = {"name": name, "visibility": "public", **formats}
    id = str(client.post("/image/v2/images", json=body).raise_for_status().json()["id"])
    kind = {"content-type": "application/octet-stream"}
    client.put(f"/image/v2/images/{id}/file", content=bytes(1024), headers=kind).raise_for_status()
    return id


def _make_config(
    url: str, folder: Path, flavors: list[str], images: list[str]
) -> configparser.RawConfigParser:
    sections: dict[str, dict[str, object]] = {
        "DEFAULT": {"log_file": folder / "tempest.log", "debug": True, "use_stderr": False},
        "oslo_concurrency": {"lock_path": folder / "locks"},
        "auth": {
            "use_dynamic_credentials": False,
            "test_accounts_file": folder / "accounts.yaml",
            "admin_role": "admin",
        },
        "identity": {
            "uri_v3": f"{url}/identity/v3",
            "auth_version": "v3",
            "region": "RegionOne",
            "v3_endpoint_type": "public",
        },
        "identity-feature-enabled": {"api_v2": False, "api_v3": True},
        "service_available": {
            "nova": True,
            "glance": True,
            "placement": True,
            **dict.fromkeys(("neutron", "cinder", "swift", "horizon"), False),
        },
        "compute": {
            "image_ref": images[0],
            "image_ref_alt": images[1],
            "flavor_ref": flavors[0],
            "flavor_ref_alt": flavors[1],
            "build_timeout": 60,
            "build_interval": 1,
            "min_compute_nodes": 2,
            "min_microversion": 2.1,
            "max_microversion": _read_newest(url),
            "hypervisor_type": "sim",
        },
        "compute-feature-enabled": {
            **dict.fromkeys(
                (
                    *("resize", "cold_migration", "live_migration", "shelve", "shelve_migrate"),
                    *("pause", "suspend", "snapshot", "rescue", "console_output", "config_drive"),
                    *("live_migrate_back_and_forth", "can_migrate_between_any_hosts"),
                    "block_migration_for_live_migration",
                ),
                True,
            ),
            "scheduler_enabled_filters": "all",
            **dict.fromkeys(
                (
                    *("vnc_console", "spice_console", "serial_console", "change_password", "personality"),
                    *("interface_attach", "metadata_service", "attach_encrypted_volume", "swap_volume"),
                    "stable_rescue",
                ),
                False,
            ),
        },
        "placement": {"min_microversion": 1.0, "max_microversion": 1.39},
        "validation": {"run_validation": False},
        "image-feature-enabled": {"import_image": False},
        "network-feature-enabled": {"api_extensions": ""},
    }
    config = configparser.RawConfigParser(default_section="none")
    config.read_dict(sections)
    return config


def _read_newest(url: str) -> str:
    return str(httpx.get(f"{url}/compute/v2.1").json()["version"]["version"])
