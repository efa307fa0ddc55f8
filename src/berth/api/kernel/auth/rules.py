"""The rules of every API and what each asks for by default: names and defaults of Placement, Nova, Glance and
Keystone where they have the operation, ``berth:`` for the rest.

    reader < member < manager < admin      each has all that those before it have
    auditor < operator                     beside them: looks at the whole deployment; also acts on hosts
    service                                beside them: another service of the cloud

Nova's and Glance's defaults are those of secure RBAC. Where theirs let every token in (``@``), a token still
needs a role that is known here: one without roles gets nothing, from any API. One file of an operator is for
all of them, so a building block has one meaning: that of Placement, whose blocks Nova's agree with.
"""

from typing import Final

from oslo_policy import policy as oslo

from berth.sagas.move import CROSS_CELL_RULE

IS_ADMIN: Final = "context_is_admin"
"""Who is an administrator: may act on every project's objects, and sees hosts."""

_PROJECT: Final = ["project"]

# -- building blocks ----------------------------------------------------------------------------

_FORMER: Final = oslo.DeprecatedRule(
    name="rule:admin_api",
    check_str="role:admin",
    deprecated_reason="Roles other than admin exist for this.",
    deprecated_since="Wallaby",
)
"""What the legacy defaults allow besides the secure ones."""

_PLACEMENT_BLOCKS: Final = (
    oslo.RuleDefault("admin_api", "role:admin", scope_types=_PROJECT),
    oslo.RuleDefault("service_api", "role:service", scope_types=_PROJECT, deprecated_rule=_FORMER),
    oslo.RuleDefault(
        "admin_or_service_api", "role:admin or role:service", scope_types=_PROJECT, deprecated_rule=_FORMER
    ),
    oslo.RuleDefault(
        "project_reader_api", "role:reader and project_id:%(project_id)s", deprecated_rule=_FORMER
    ),
    oslo.RuleDefault(
        "admin_or_project_reader_or_service_api",
        "role:admin or rule:project_reader_api or role:service",
        scope_types=_PROJECT,
        deprecated_rule=_FORMER,
    ),
)

_BLOCKS: Final = {
    IS_ADMIN: "role:admin",
    "project_manager_api": "role:manager and project_id:%(project_id)s",
    "project_member_api": "role:member and project_id:%(project_id)s",
    "project_manager_or_admin": "rule:project_manager_api or rule:context_is_admin",
    "project_member_or_admin": "rule:project_member_api or rule:context_is_admin",
    "project_reader_or_admin": "rule:project_reader_api or rule:context_is_admin",
    "operator_api": "rule:admin_or_service_api or role:operator",
    "auditor_api": "rule:operator_api or role:auditor",
    "known_role": "role:reader or role:member or role:manager or rule:auditor_api or rule:context_is_admin",
}
"""Rules that guard nothing themselves; the others are made of them."""

_ADMIN_OR_SERVICE: Final = "rule:admin_or_service_api"
_OPERATOR: Final = "rule:operator_api"
_AUDITOR: Final = "rule:auditor_api"
_SERVICE: Final = "rule:service_api"
_USAGE: Final = "rule:admin_or_project_reader_or_service_api"
_ADMIN: Final = f"rule:{IS_ADMIN}"
_MANAGER: Final = "rule:project_manager_or_admin"
_MEMBER: Final = "rule:project_member_or_admin"
_READER: Final = "rule:project_reader_or_admin"
_KNOWN: Final = "rule:known_role"

# -- Placement ----------------------------------------------------------------------------------

_PLACEMENT: Final = {
    "resource_providers:list": _ADMIN_OR_SERVICE,
    "resource_providers:create": _ADMIN_OR_SERVICE,
    "resource_providers:show": _ADMIN_OR_SERVICE,
    "resource_providers:update": _ADMIN_OR_SERVICE,
    "resource_providers:delete": _ADMIN_OR_SERVICE,
    "resource_classes:list": _ADMIN_OR_SERVICE,
    "resource_classes:create": _ADMIN_OR_SERVICE,
    "resource_classes:show": _ADMIN_OR_SERVICE,
    "resource_classes:update": _ADMIN_OR_SERVICE,
    "resource_classes:delete": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:list": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:create": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:show": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:update": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:delete": _ADMIN_OR_SERVICE,
    "resource_providers:aggregates:list": _ADMIN_OR_SERVICE,
    "resource_providers:aggregates:update": _ADMIN_OR_SERVICE,
    "resource_providers:usages": _ADMIN_OR_SERVICE,
    "usages": _USAGE,
    "traits:list": _ADMIN_OR_SERVICE,
    "traits:show": _ADMIN_OR_SERVICE,
    "traits:update": _ADMIN_OR_SERVICE,
    "traits:delete": _ADMIN_OR_SERVICE,
    "resource_providers:traits:list": _ADMIN_OR_SERVICE,
    "resource_providers:traits:update": _ADMIN_OR_SERVICE,
    "resource_providers:traits:delete": _ADMIN_OR_SERVICE,
    "allocations:manage": _ADMIN_OR_SERVICE,
    "allocations:list": _ADMIN_OR_SERVICE,
    "allocations:update": _ADMIN_OR_SERVICE,
    "allocations:delete": _ADMIN_OR_SERVICE,
    "resource_providers:allocations:list": _ADMIN_OR_SERVICE,
    "allocation_candidates:list": _ADMIN_OR_SERVICE,
    "reshaper:reshape": _SERVICE,
}
"""In a policy file the names begin with ``placement:``."""

# -- /berth/v1 ----------------------------------------------------------------------------------

_NATIVE: Final = {
    "consumers:list": _AUDITOR,
    "allocations:list": _AUDITOR,
    "usage:show": _AUDITOR,
    "events:list": _AUDITOR,
    "groups:list": _AUDITOR,
    "groups:show": _AUDITOR,
    "groups:create": _ADMIN_OR_SERVICE,
    "groups:update": _ADMIN_OR_SERVICE,
    "groups:delete": _ADMIN_OR_SERVICE,
    "aggregates:list": _AUDITOR,
    "aggregates:update": _ADMIN_OR_SERVICE,
    "overview:show": _AUDITOR,
    "operations:list": _AUDITOR,
    "cells:list": _AUDITOR,
    "hosts:list": _AUDITOR,
    "hosts:update": _OPERATOR,
    "drains:list": _AUDITOR,
    "drains:create": _OPERATOR,
    "drains:delete": _OPERATOR,
    "pools:list": _AUDITOR,
    "pools:create": _ADMIN_OR_SERVICE,
    "pools:update": _ADMIN_OR_SERVICE,
    "pools:delete": _ADMIN_OR_SERVICE,
    "schedule": _ADMIN_OR_SERVICE,
    "capacity": _AUDITOR,
    "servers:show": _AUDITOR,
    "devices:show:units": _AUDITOR,
    "needs:list": _AUDITOR,
    "needs:show": _AUDITOR,
    "needs:create": _ADMIN_OR_SERVICE,
    "needs:update": _ADMIN_OR_SERVICE,
    "needs:delete": _ADMIN_OR_SERVICE,
    "doctor:examine": _AUDITOR,
    "doctor:repair": _ADMIN_OR_SERVICE,
    # Those of users, about servers of their own project.
    "explain": f"{_MEMBER} or {_AUDITOR}",
    "devices:show": f"{_READER} or {_AUDITOR}",
    "clusters:list": f"{_READER} or {_SERVICE}",
    "clusters:show": f"{_READER} or {_SERVICE}",
    "clusters:create": f"{_MEMBER} or {_SERVICE}",
    "clusters:update": f"{_MEMBER} or {_SERVICE}",
    "clusters:delete": f"{_MEMBER} or {_SERVICE}",
    "openapi:show": _KNOWN,
    "caller:show": _KNOWN,
    # Of /compute, where Nova has no rule.
    "flavors:list": _KNOWN,
    "flavors:show": _KNOWN,
}
"""In a policy file the names begin with ``berth:``."""

# -- /compute -----------------------------------------------------------------------------------

_OWN_USER: Final = f"({_ADMIN}) or (user_id:%(user_id)s and {_KNOWN})"

_COMPUTE: Final = {
    "servers:index": _READER,
    "servers:detail": _READER,
    "servers:index:get_all_tenants": _ADMIN,
    "servers:detail:get_all_tenants": _ADMIN,
    "servers:allow_all_filters": _ADMIN,
    "servers:show": _READER,
    "servers:show:flavor-extra-specs": _READER,
    "servers:show:host_status": _ADMIN,
    "servers:create": _MEMBER,
    "servers:create:forced_host": _ADMIN,
    "servers:delete": _MEMBER,
    "servers:update": _MEMBER,
    "servers:resize": _MEMBER,
    "servers:confirm_resize": _MEMBER,
    "servers:revert_resize": _MEMBER,
    "servers:rebuild": _MEMBER,
    "servers:start": _MEMBER,
    "servers:stop": _MEMBER,
    "servers:reboot": _MEMBER,
    "servers:create_image": _MEMBER,
    "servers:migrations:index": _MANAGER,
    "servers:migrations:index:host": _ADMIN,
    "servers:migrations:show": _ADMIN,
    "servers:migrations:delete": _MANAGER,
    "servers:migrations:force_complete": _MANAGER,
    "server-metadata:index": _READER,
    "server-metadata:show": _READER,
    "server-metadata:create": _MEMBER,
    "server-metadata:update_all": _MEMBER,
    "server-metadata:update": _MEMBER,
    "server-metadata:delete": _MEMBER,
    "os-server-tags:index": _READER,
    "os-server-tags:show": _READER,
    "os-server-tags:update": _MEMBER,
    "os-server-tags:update_all": _MEMBER,
    "os-server-tags:delete": _MEMBER,
    "os-server-tags:delete_all": _MEMBER,
    "ips:index": _READER,
    "ips:show": _READER,
    "os-security-groups:list": _READER,
    "os-attach-interfaces:list": _READER,
    "os-volumes-attachments:index": _READER,
    "os-extended-server-attributes": _ADMIN,
    "os-lock-server:lock": _MEMBER,
    "os-lock-server:unlock": _MEMBER,
    "os-lock-server:unlock:unlock_override": _ADMIN,
    "os-migrate-server:migrate": _MANAGER,
    "os-migrate-server:migrate:host": _ADMIN,
    "os-migrate-server:migrate_live": _MANAGER,
    "os-migrate-server:migrate_live:host": _ADMIN,
    "os-evacuate": _ADMIN,
    "os-pause-server:pause": _MEMBER,
    "os-pause-server:unpause": _MEMBER,
    "os-suspend-server:suspend": _MEMBER,
    "os-suspend-server:resume": _MEMBER,
    "os-rescue": _MEMBER,
    "os-unrescue": _MEMBER,
    "os-admin-actions:reset_state": _ADMIN,
    "os-shelve:shelve": _MEMBER,
    "os-shelve:unshelve": _MEMBER,
    "os-shelve:unshelve_to_host": _ADMIN,
    "os-shelve:shelve_offload": _ADMIN,
    "os-create-backup": _MEMBER,
    "os-deferred-delete:force": _MEMBER,
    "os-deferred-delete:restore": _MEMBER,
    "os-migrations:index": _MANAGER,
    "os-migrations:index:all_projects": _ADMIN,
    "os-migrations:index:host": _ADMIN,
    "os-instance-actions:list": _READER,
    "os-instance-actions:show": _READER,
    "os-instance-actions:events": _ADMIN,
    "os-instance-actions:events:details": _ADMIN,
    "os-flavor-manage:create": _ADMIN,
    "os-flavor-manage:update": _ADMIN,
    "os-flavor-manage:delete": _ADMIN,
    "os-flavor-extra-specs:index": _READER,
    "os-flavor-extra-specs:show": _READER,
    "os-flavor-extra-specs:create": _ADMIN,
    "os-flavor-extra-specs:update": _ADMIN,
    "os-flavor-extra-specs:delete": _ADMIN,
    "os-flavor-access": _ADMIN,
    "os-flavor-access:add_tenant_access": _ADMIN,
    "os-flavor-access:remove_tenant_access": _ADMIN,
    "os-server-groups:index": _READER,
    "os-server-groups:index:all_projects": _ADMIN,
    "os-server-groups:show": _READER,
    "os-server-groups:create": _MEMBER,
    "os-server-groups:delete": _MEMBER,
    "os-aggregates:index": _ADMIN,
    "os-aggregates:show": _ADMIN,
    "os-aggregates:create": _ADMIN,
    "os-aggregates:update": _ADMIN,
    "os-aggregates:delete": _ADMIN,
    "os-aggregates:add_host": _ADMIN,
    "os-aggregates:remove_host": _ADMIN,
    "os-aggregates:set_metadata": _ADMIN,
    "os-availability-zone:list": _KNOWN,
    "os-availability-zone:detail": _ADMIN,
    "os-hypervisors:list": _ADMIN,
    "os-hypervisors:list-detail": _ADMIN,
    "os-hypervisors:statistics": _ADMIN,
    "os-hypervisors:show": _ADMIN,
    "os-hypervisors:uptime": _ADMIN,
    "os-hypervisors:search": _ADMIN,
    "os-hypervisors:servers": _ADMIN,
    "os-services:list": _ADMIN,
    "os-services:update": _ADMIN,
    "os-services:delete": _ADMIN,
    "limits": _KNOWN,
    "limits:other_project": _ADMIN,
    "os-quota-sets:show": _READER,
    "os-quota-sets:defaults": _KNOWN,
    "os-quota-sets:detail": _READER,
    "os-quota-sets:update": _ADMIN,
    "os-quota-sets:delete": _ADMIN,
    "os-quota-class-sets:show": _ADMIN,
    "os-quota-class-sets:update": _ADMIN,
    "extensions": _KNOWN,
    "os-hosts:list": _ADMIN,
    "os-hosts:show": _ADMIN,
    "os-hosts:update": _ADMIN,
    "os-hosts:start": _ADMIN,
    "os-hosts:shutdown": _ADMIN,
    "os-hosts:reboot": _ADMIN,
    "os-simple-tenant-usage:list": _ADMIN,
    "os-simple-tenant-usage:show": _READER,
    "os-instance-usage-audit-log:list": _ADMIN,
    "os-instance-usage-audit-log:show": _ADMIN,
    "os-server-external-events:create": _ADMIN_OR_SERVICE,
    "os-server-diagnostics": _ADMIN,
    "os-server-password:show": _READER,
    "os-server-password:clear": _MEMBER,
    "os-keypairs:index": _OWN_USER,
    "os-keypairs:show": _OWN_USER,
    "os-keypairs:create": _OWN_USER,
    "os-keypairs:delete": _OWN_USER,
}
"""In a policy file the names begin with ``os_compute_api:``."""

REQUESTED_DESTINATION: Final = "compute:servers:create:requested_destination"
TOPOLOGY: Final = "compute:server:topology:index"
TOPOLOGY_OF_HOST: Final = "compute:server:topology:host:index"
"""The rules of Nova's that have another beginning."""

# -- /image -------------------------------------------------------------------------------------

_OWNED: Final = "project_id:%(project_id)s"
_SHOWN: Final = (
    f"{_OWNED} or project_id:%(member_id)s or 'community':%(visibility)s or 'public':%(visibility)s or "
    "'shared':%(visibility)s"
)
_IMAGE_MEMBER: Final = f"{_ADMIN} or (role:member and {_OWNED})"
_IMAGE_READER: Final = f"{_ADMIN} or (role:reader and {_OWNED})"

_IMAGE: Final = {
    "add_image": f"{_ADMIN} or (role:member and {_OWNED} and project_id:%(owner)s)",
    "delete_image": _IMAGE_MEMBER,
    "get_image": f"{_ADMIN} or (role:reader and ({_SHOWN}))",
    "get_images": _IMAGE_READER,
    "modify_image": _IMAGE_MEMBER,
    "publicize_image": _ADMIN,
    "communitize_image": _IMAGE_MEMBER,
    "download_image": f"{_ADMIN} or (role:member and ({_SHOWN}))",
    "upload_image": _IMAGE_MEMBER,
    "get_members": f"{_ADMIN} or role:reader and ({_OWNED} or project_id:%(member_id)s)",
    "get_member": f"{_ADMIN} or role:reader and ({_OWNED} or project_id:%(member_id)s)",
    "add_member": _IMAGE_MEMBER,
    "modify_member": f"{_ADMIN} or (role:member and project_id:%(member_id)s)",
    "delete_member": _IMAGE_MEMBER,
    "deactivate": _IMAGE_MEMBER,
    "reactivate": _IMAGE_MEMBER,
}
"""Glance's names have no beginning of their own. Which images are there for whom is ``Access``'s to say."""

# -- /identity ----------------------------------------------------------------------------------

_IDENTITY: Final = (
    *(f"list_{plural}" for plural in ("projects", "users", "roles", "domains", "regions", "services")),
    *(f"get_{one}" for one in ("project", "user", "role", "domain", "region", "service", "endpoint")),
    "list_endpoints",
    "list_user_projects",
    "get_auth_projects",
    "get_auth_domains",
    "get_auth_catalog",
    "validate_token",
    "revoke_token",
)
"""In a policy file the names begin with ``identity:``. All are for every known role: an administrator sees
everybody, all others themselves."""


def _rules(prefix: str, guards: dict[str, str]) -> list[oslo.RuleDefault]:
    return [
        oslo.RuleDefault(f"{prefix}{name}", check, scope_types=_PROJECT) for name, check in guards.items()
    ]


GUARDS: Final = (
    *_rules("placement:", _PLACEMENT),
    *_rules("berth:", _NATIVE),
    *_rules("os_compute_api:", _COMPUTE),
    *_rules("", {REQUESTED_DESTINATION: _ADMIN, TOPOLOGY: _READER, TOPOLOGY_OF_HOST: _ADMIN}),
    # Nova's default is nobody. Here a setting keeps it off, and operators try it first.
    *_rules("", {CROSS_CELL_RULE: _ADMIN}),
    *_rules("", _IMAGE),
    *_rules("identity:", dict.fromkeys(_IDENTITY, _KNOWN)),
)
"""Rules that guard something."""

RULES: Final = (*_PLACEMENT_BLOCKS, *_rules("", _BLOCKS), *GUARDS)
