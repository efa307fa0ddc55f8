"""What the API reference says of the routes that OpenStack's projects have described already: a sentence for
each, its parameters and its body.

A route without a row here fails `make docs` and its test by name, and so does a row without a route.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from berth.api.compute import (
    aggregates,
    external_events,
    flavors,
    hosts,
    hypervisors,
    images,
    instance_actions,
    keypairs,
    migrations,
    quotas,
    server_groups,
    services,
    usage,
)
from berth.api.compute.api import ROUTES as COMPUTE
from berth.api.compute.servers import create, show, tags, update
from berth.api.compute.servers.fields import FIELDS, Field
from berth.api.compute.versions import V21
from berth.api.identity.directory import Directory, NoAuthIssuer
from berth.api.identity.tokens import LoginBody
from berth.api.image.api import ROUTES as IMAGE
from berth.api.kernel.router import Route
from berth.api.placement import schemas
from berth.api.placement.routes import ROUTES as PLACEMENT
from berth.api.placement.versions import LATEST

Schema = dict[str, Any]


class About(NamedTuple):
    """``body``: a struct, or a JSON schema. ``query``: the parameters. ``fields``: what fields are for."""

    text: str
    body: Any = None
    query: tuple[str, ...] = ()
    fields: Mapping[str, Field] = {}


class UpstreamApi(NamedTuple):
    name: str
    title: str
    text: str
    prefix: str
    routes: tuple[Route[Any], ...]
    said: Mapping[str, About]
    since: Callable[[Route[Any]], str] | None = None

    @property
    def head(self) -> tuple[str, ...]:
        since = ("since",) if self.since is not None else ()
        return ("route", *since, "what it does", "policy rule, and who may by default")

    def about(self, route: Route[Any]) -> About:
        return self.said[f"{route.method} {route.path}"]


def _query(since: Mapping[str, int]) -> tuple[str, ...]:
    """Parameters of the compute API, with the microversion that each came with."""
    return tuple(
        f"`{name}`" + ("" if version <= 1 else f" (since 2.{version})") for name, version in since.items()
    )


def _schema_query(schema: Schema) -> tuple[str, ...]:
    patterns = (
        pattern.removeprefix("^").removesuffix("$") for pattern in schema.get("patternProperties", ())
    )
    required = schema.get("required", ())
    return tuple(
        f"`{name}`" + (" (required)" if name in required else "")
        for name in (*schema.get("properties", ()), *patterns)
    )


# -- Placement ----------------------------------------------------------------------------------

_PLACEMENT_TEXT: Final = """
The API of [OpenStack Placement](https://docs.openstack.org/api-ref/placement/), microversions 1.0 to 1.39, as
Placement documents it. Upstream's own API suite runs against Berth;
[compatibility](../guides/compatibility.md) lists the differences. The version is asked for with
`OpenStack-API-Version: placement 1.39`; without the header it is 1.0. Bodies and parameters are those of the
newest version. Beside Placement's codes, a write can be refused with `berth.group_policy` (409) and
`berth.too_large` (413).
"""

_PLACEMENT: Final = {
    "GET /": About("Show the versions."),
    "GET /resource_classes": About("List resource classes."),
    "POST /resource_classes": About("Create a custom resource class.", schemas.RESOURCE_CLASS),
    "GET /resource_classes/{name}": About("Show a resource class."),
    "PUT /resource_classes/{name}": About("Create a custom class if it is missing (before 1.7: rename it)."),
    "DELETE /resource_classes/{name}": About("Delete a custom class that nothing uses."),
    "GET /resource_providers": About(
        "List providers, by name, uuid, aggregate, room, tree or traits.",
        query=_schema_query(schemas.providers_query(LATEST)),
    ),
    "POST /resource_providers": About("Create a provider.", schemas.new_provider(LATEST)),
    "GET /resource_providers/{uuid}": About("Show a provider."),
    "DELETE /resource_providers/{uuid}": About("Delete a provider without children and allocations."),
    "PUT /resource_providers/{uuid}": About(
        "Rename a provider, or put it below another.", schemas.changed_provider(LATEST)
    ),
    "GET /resource_providers/{uuid}/inventories": About("List the inventories of a provider."),
    "POST /resource_providers/{uuid}/inventories": About("Add an inventory.", schemas.NEW_INVENTORY),
    "PUT /resource_providers/{uuid}/inventories": About("Replace all inventories.", schemas.INVENTORIES),
    "DELETE /resource_providers/{uuid}/inventories": About("Delete all inventories that nothing uses."),
    "GET /resource_providers/{uuid}/inventories/{resource_class}": About("Show an inventory."),
    "PUT /resource_providers/{uuid}/inventories/{resource_class}": About(
        "Change an inventory.", schemas.CHANGED_INVENTORY
    ),
    "DELETE /resource_providers/{uuid}/inventories/{resource_class}": About("Delete an inventory."),
    "GET /resource_providers/{uuid}/usages": About("Show how much of each class is used."),
    "GET /resource_providers/{uuid}/aggregates": About("List the aggregates of a provider."),
    "PUT /resource_providers/{uuid}/aggregates": About(
        "Replace the aggregates of a provider.", schemas.aggregates(LATEST)
    ),
    "GET /resource_providers/{uuid}/allocations": About("List who holds what on a provider."),
    "POST /allocations": About(
        "Replace the allocations of several consumers, all of them or none: a move is one such request.",
        schemas.claims(LATEST),
    ),
    "GET /allocations/{consumer_uuid}": About("Show what a consumer holds."),
    "PUT /allocations/{consumer_uuid}": About("Claim: replace what a consumer holds.", schemas.claim(LATEST)),
    "DELETE /allocations/{consumer_uuid}": About("Release all that a consumer holds."),
    "GET /allocation_candidates": About(
        "Find where a request fits.", query=_schema_query(schemas.candidates_query(LATEST))
    ),
    "GET /traits": About("List traits.", query=_schema_query(schemas.TRAITS_QUERY)),
    "GET /traits/{name}": About("Say whether a trait exists."),
    "PUT /traits/{name}": About("Create a custom trait if it is missing."),
    "DELETE /traits/{name}": About("Delete a custom trait that no provider has."),
    "GET /resource_providers/{uuid}/traits": About("List the traits of a provider."),
    "PUT /resource_providers/{uuid}/traits": About(
        "Replace the traits of a provider.", schemas.PROVIDER_TRAITS
    ),
    "DELETE /resource_providers/{uuid}/traits": About("Remove all traits of a provider."),
    "GET /usages": About("Sum up what a project uses.", query=_schema_query(schemas.usages_query(LATEST))),
    "POST /reshaper": About(
        "Move inventories and allocations between providers in one change.", schemas.reshape(LATEST)
    ),
}

# -- compute ------------------------------------------------------------------------------------

_COMPUTE_TEXT: Final = """
The part of [Nova's API](https://docs.openstack.org/api-ref/compute/) that Berth has: servers, flavors, server
groups, aggregates, hypervisors, services, quotas. The version is asked for with `OpenStack-API-Version:
compute 2.94`; without the header it is 2.1. Answers have Nova's shapes. Every field of a body that Nova has
is used or refused by name: [extra specs, image properties, hints and fields](../guides/extra-specs.md) lists
them all, and [operations](../guides/operations.md) what each action does, step by step. There are no
networks, volumes, key pairs, consoles and backups: lists of them are empty, and requests for them are
refused.

An action is `{"NAME": ARGUMENTS}` in a `POST .../action`. Writes to servers take `X-Berth-Conflict-Policy`
([conflicts](../guides/conflicts.md)).
"""

_COMPUTE: Final = {
    "POST /servers": About(
        "Create servers: claimed at once, built by their cell.",
        create.NewServerBody,
        fields=FIELDS["create"],
    ),
    "GET /servers": About("List servers of the project.", query=_query(show.QUERY)),
    "GET /servers/detail": About("The same, with details and the same parameters."),
    "GET /servers/{id}": About("Show a server."),
    "GET /servers/{id}/topology": About("Show the NUMA topology of a server."),
    "PUT /servers/{id}": About(
        "Change name or description.", update.ChangedServerBody, fields=FIELDS["update"]
    ),
    "DELETE /servers/{id}": About("Delete a server."),
    "GET /servers/{id}/metadata": About("Show the metadata of a server."),
    "PUT /servers/{id}/metadata": About("Replace the metadata.", update.MetadataBody),
    "POST /servers/{id}/metadata": About("Add to the metadata."),
    "GET /servers/{id}/metadata/{key}": About("Show one item of the metadata."),
    "PUT /servers/{id}/metadata/{key}": About("Set one item of the metadata.", update.MetaBody),
    "DELETE /servers/{id}/metadata/{key}": About("Remove one item of the metadata."),
    "POST /servers/{id}/action": About("Do one of the actions below."),
    "GET /os-migrations": About("List migrations.", query=_query(migrations.QUERY)),
    "GET /servers/{id}/migrations": About("List the live migrations of a server that are under way."),
    "GET /servers/{id}/migrations/{migration}": About("Show one of them."),
    "DELETE /servers/{id}/migrations/{migration}": About("Abort a live migration."),
    "POST /servers/{id}/migrations/{migration}/action": About("Refused: it can only be aborted."),
    "GET /servers/{id}/os-instance-actions": About(
        "List what was done to a server, and how it ended.", query=_query(instance_actions.QUERY)
    ),
    "GET /servers/{id}/os-instance-actions/{request_id}": About("Show one operation with its steps."),
    "GET /flavors": About("List flavors.", query=_query(flavors.QUERY)),
    "POST /flavors": About("Create a flavor.", flavors.CreateFlavor),
    "GET /flavors/detail": About("The same, with details and the same parameters."),
    "GET /flavors/{id}": About("Show a flavor."),
    "PUT /flavors/{id}": About("Change the description of a flavor.", flavors.UpdateFlavor),
    "DELETE /flavors/{id}": About("Delete a flavor; servers keep what they were made with."),
    "GET /flavors/{id}/os-extra_specs": About("List the extra specs of a flavor."),
    "POST /flavors/{id}/os-extra_specs": About("Add extra specs.", flavors.NewExtraSpecs),
    "GET /flavors/{id}/os-extra_specs/{key}": About("Show an extra spec."),
    "PUT /flavors/{id}/os-extra_specs/{key}": About("Set an extra spec."),
    "DELETE /flavors/{id}/os-extra_specs/{key}": About("Remove an extra spec."),
    "GET /flavors/{id}/os-flavor-access": About("List the projects that may use a private flavor."),
    "POST /flavors/{id}/action": About(
        "Let a project use a flavor, or no longer.", flavors.FlavorAccessChange
    ),
    "GET /os-server-groups": About("List server groups.", query=_query(server_groups.QUERY)),
    "POST /os-server-groups": About("Create a server group.", server_groups.ServerGroupBody),
    "GET /os-server-groups/{id}": About("Show a server group."),
    "DELETE /os-server-groups/{id}": About("Delete a server group."),
    "GET /os-aggregates": About("List aggregates."),
    "POST /os-aggregates": About(
        "Create an aggregate; with a zone it is an availability zone.", aggregates.CreateAggregate
    ),
    "GET /os-aggregates/{id}": About("Show an aggregate."),
    "PUT /os-aggregates/{id}": About("Change its name or zone.", aggregates.UpdateAggregate),
    "DELETE /os-aggregates/{id}": About("Delete an aggregate without hosts."),
    "POST /os-aggregates/{id}/action": About(
        "Add a host, remove one, or set metadata: one of them.", aggregates.AggregateAction
    ),
    "GET /os-availability-zone": About("List availability zones."),
    "GET /os-availability-zone/detail": About("The same, with their hosts."),
    "GET /os-hypervisors": About("List hosts with an agent.", query=_query(hypervisors.QUERY)),
    "GET /os-hypervisors/detail": About("The same, with details and the same parameters."),
    "GET /os-hypervisors/statistics": About("Sum up all hosts."),
    "GET /os-hypervisors/{id}": About("Show a host."),
    "GET /os-hypervisors/{id}/uptime": About("Refused with 501: agents report no uptime."),
    "GET /os-hypervisors/{pattern}/search": About("Find hosts by a part of their name."),
    "GET /os-hypervisors/{pattern}/servers": About("The same, with their servers."),
    "GET /os-services": About(
        "List agents, up or down; complaints of a host are its reason.", query=_query(services.QUERY)
    ),
    "PUT /os-services/{id}": About("Disable, enable or force down a host.", services.ServiceChange),
    "DELETE /os-services/{id}": About("Refused: the service of a host is its agent."),
    "GET /limits": About(
        "Show the limits of a project, and what it uses.", query=_query({"tenant_id": 1, "reserved": 1})
    ),
    "GET /os-quota-sets/{project}": About("Show the quotas of a project."),
    "PUT /os-quota-sets/{project}": About(
        "Set quotas of a project ([quotas](../guides/quotas.md)).", quotas.NewQuotaSet
    ),
    "DELETE /os-quota-sets/{project}": About("Give a project the default quotas again."),
    "GET /os-quota-sets/{project}/defaults": About("Show the default quotas."),
    "GET /os-quota-sets/{project}/detail": About("Show quotas with what is in use."),
    "GET /os-quota-class-sets/{name}": About("Show the quotas of the class `default`."),
    "PUT /os-quota-class-sets/{name}": About("Set the default quotas.", quotas.NewQuotaClass),
    "GET /extensions": About("List the parts of Nova's API that once were extensions."),
    "GET /extensions/{alias}": About("Show one of them."),
    "GET /os-keypairs": About("List the key pairs of a user.", query=_query(keypairs.QUERY)),
    "POST /os-keypairs": About(
        "Import a public key, or have a key pair made (before 2.92).", keypairs.CreateKeyPair
    ),
    "GET /os-keypairs/{name}": About("Show a key pair.", query=_query(keypairs.QUERY_ONE)),
    "DELETE /os-keypairs/{name}": About("Delete a key pair; servers keep their copy of it."),
    "GET /servers/{id}/tags": About("List the tags of a server (since 2.26)."),
    "PUT /servers/{id}/tags": About("Replace the tags.", tags.TagsBody),
    "DELETE /servers/{id}/tags": About("Remove all tags."),
    "GET /servers/{id}/tags/{tag}": About("204 if the server has the tag, else 404."),
    "PUT /servers/{id}/tags/{tag}": About("Add a tag."),
    "DELETE /servers/{id}/tags/{tag}": About("Remove a tag."),
    "GET /servers/{id}/ips": About("List the addresses that the server's agent has reported, by network."),
    "GET /servers/{id}/ips/{network}": About("The same, of one network."),
    "GET /servers/{id}/diagnostics": About(
        "Show what is known of a server from outside; agents report no figures, which are null."
    ),
    "GET /servers/{id}/os-server-password": About("An empty password: guests report none."),
    "DELETE /servers/{id}/os-server-password": About("Nothing is left to clear."),
    "GET /os-hosts": About("List hosts (before 2.43).", query=_query({"zone": 1, "service": 1})),
    "GET /os-hosts/{host}": About("Show what a host has, and which project uses how much (before 2.43)."),
    "PUT /os-hosts/{host}": About("Disable or enable a host (before 2.43).", hosts.HostUpdate),
    "GET /os-hosts/{host}/startup": About("Refused with 501: drivers have no power switch."),
    "GET /os-hosts/{host}/shutdown": About("Refused with 501: drivers have no power switch."),
    "GET /os-hosts/{host}/reboot": About("Refused with 501: drivers have no power switch."),
    "GET /images": About("List images (before 2.36): ask the image API.", query=_query(images.QUERY)),
    "GET /images/detail": About("The same, with details and the same parameters."),
    "GET /images/{id}": About("Show an image (before 2.36)."),
    "DELETE /images/{id}": About("Delete an image (before 2.36)."),
    "GET /images/{id}/metadata": About("List the properties of an image (before 2.39)."),
    "POST /images/{id}/metadata": About("Add properties (before 2.39).", images.ImageMetadataBody),
    "PUT /images/{id}/metadata": About("Replace the properties (before 2.39).", images.ImageMetadataBody),
    "GET /images/{id}/metadata/{key}": About("Show a property (before 2.39)."),
    "PUT /images/{id}/metadata/{key}": About("Set a property (before 2.39).", images.ImageMetaBody),
    "DELETE /images/{id}/metadata/{key}": About("Remove a property (before 2.39)."),
    "GET /os-simple-tenant-usage": About(
        "Show how long the servers of all projects have run, weighted by their sizes.",
        query=_query(usage.QUERY_ALL),
    ),
    "GET /os-simple-tenant-usage/{project}": About("The same, of one project.", query=_query(usage.QUERY)),
    "GET /os-instance_usage_audit_log": About("Show that no host has run an audit."),
    "GET /os-instance_usage_audit_log/{before}": About("The same, of the month before a time."),
    "POST /os-server-external-events": About(
        "Events of other services. Those of networks are accepted, others refused one by one.",
        external_events.ExternalEvents,
    ),
    "GET /servers/{id}/os-security-groups": About("An empty list: there are no networks."),
    "GET /servers/{id}/os-interface": About("An empty list: there are no networks."),
    "GET /servers/{id}/os-volume_attachments": About("An empty list: there are no volumes."),
}

# -- image --------------------------------------------------------------------------------------

_IMAGE_TEXT: Final = """
[Glance's API](https://docs.openstack.org/api-ref/image/v2/): images with their properties, contents and
members. Metadata definitions, tasks, import, several stores, locations and the cache are refused by name. How
images are used is in [the guide](../guides/images.md). Properties are listed in [extra specs, image
properties, hints and fields](../guides/extra-specs.md#properties-of-images).
"""

_IMAGE: Final = {
    "GET /images": About("List images; any property filters, beside `limit`, `marker`, `sort`, `tag`."),
    "POST /images": About("Create an image; it is `queued` until content was uploaded."),
    "GET /images/{id}": About("Show an image."),
    "PATCH /images/{id}": About("Change an image: JSON patch, with `add`, `replace` and `remove`."),
    "DELETE /images/{id}": About("Delete an image that is not protected."),
    "PUT /images/{id}/file": About("Upload the content, of any length within the quotas."),
    "GET /images/{id}/file": About("Download the content, or one range of it."),
    "PUT /images/{id}/tags/{tag}": About("Add a tag."),
    "DELETE /images/{id}/tags/{tag}": About("Remove a tag."),
    "POST /images/{id}/actions/deactivate": About("Let no server be built from it."),
    "POST /images/{id}/actions/reactivate": About("Let servers be built from it again."),
    "GET /images/{id}/members": About("List the projects that an image is shared with."),
    "POST /images/{id}/members": About("Share an image with a project."),
    "GET /images/{id}/members/{project}": About("Show a member."),
    "PUT /images/{id}/members/{project}": About("As a member, accept or reject an image."),
    "DELETE /images/{id}/members/{project}": About("Do not share an image with a project any more."),
    "GET /schemas/image": About("What an image looks like, in JSON schema."),
    "GET /schemas/images": About("What a list of images looks like."),
    "GET /schemas/member": About("What a member of an image looks like."),
    "GET /schemas/members": About("What a list of members looks like."),
    "GET /info/import": About("How images can be imported: an empty list."),
    "GET /info/usage": About("How much of images the project has, and may have."),
}

# -- identity -----------------------------------------------------------------------------------

_IDENTITY_TEXT: Final = """
The part of [Keystone's API](https://docs.openstack.org/api-ref/identity/v3/) that clients need to sign in,
where users are those of a tokens file ([tokens, Keystone and
policy](../guides/authentication-and-policy.md)). A user's password is its token in that file. There is one
domain, `default`. Administrators see everybody, all others themselves.
"""

_LISTED: Final = ("projects", "users", "roles", "domains", "regions", "services", "endpoints")
_LOGIN: Final = Route("POST", "/auth/tokens", None)
"""It has no route: it is asked before there is a caller."""

_IDENTITY: Final = {
    "POST /auth/tokens": About("Sign in: the token is in `X-Subject-Token` of the answer.", LoginBody),
    "GET /auth/tokens": About("Show the token of `X-Subject-Token`."),
    "DELETE /auth/tokens": About("Revoke it."),
    "GET /auth/projects": About("List the caller's projects."),
    "GET /auth/domains": About("List the caller's domains."),
    "GET /auth/catalog": About("Show where each API is."),
    "GET /users/{id}/projects": About("List the projects of a user."),
    **{f"GET /{plural}": About(f"List {plural}.") for plural in _LISTED},
    **{f"GET /{plural}/{{id}}": About(f"Show one of the {plural}.") for plural in _LISTED},
}
_TOKENS: Final = (
    _LOGIN,
    Route("GET", "/auth/tokens", None, policy="identity:validate_token"),
    Route("DELETE", "/auth/tokens", None, policy="identity:revoke_token"),
)


def _name_version(route: Route[Any]) -> str:
    return f"1.{getattr(route, 'since', 0)}"


APIS: Final = (
    UpstreamApi("placement", "Placement", _PLACEMENT_TEXT, "", PLACEMENT, _PLACEMENT, _name_version),
    UpstreamApi("compute", "Compute", _COMPUTE_TEXT, V21, COMPUTE, _COMPUTE),
    UpstreamApi("image", "Image", _IMAGE_TEXT, "/image/v2", IMAGE, _IMAGE),
    UpstreamApi(
        "identity",
        "Identity",
        _IDENTITY_TEXT,
        "/identity/v3",
        (*_TOKENS, *Directory(NoAuthIssuer()).routes),
        _IDENTITY,
    ),
)
