"""The part of the table of routes that is about servers."""

from berth.api.native import bodies_servers, doctor, servers, wire_servers
from berth.api.native.calls import Route, listing
from berth.api.native.parameters import Nothing


def table(prefix: str) -> dict[str, dict[str, Route]]:
    return {
        f"{prefix}/servers/{{server}}": {
            "GET": Route(
                listing(servers.show_server),
                "berth:servers:show",
                Nothing,
                wire_servers.OneServer,
                "show_server",
                "Show what a server holds",
                "With what other clients have added, and the conflict that an operation was refused for.",
            ),
        },
        f"{prefix}/servers/{{server}}/needs": {
            "GET": Route(
                listing(servers.page),
                "berth:needs:list",
                Nothing,
                wire_servers.Needs,
                "list_needs",
                "List what other services need for a server",
                "Each with where it is met, as long as the server holds anything.",
            ),
        },
        f"{prefix}/servers/{{server}}/needs/{{need}}": {
            "GET": Route(
                listing(servers.show),
                "berth:needs:show",
                Nothing,
                wire_servers.OneNeed,
                "show_need",
                "Show a need of a server",
                "With where it is met, as long as the server holds anything.",
            ),
            "PUT": Route(
                servers.put,
                "berth:needs:update",
                Nothing,
                wire_servers.OneNeed,
                "put_need",
                "Have a server need something",
                "Part of every claim and move of the server from now on. It is claimed at once, on the host "
                "where the server is; without room there the answer is 409, `berth.no_fit`. What stood under "
                "the name is replaced. Refused with 409 while something is being done to the server.",
                body=bodies_servers.PutNeed,
            ),
            "DELETE": Route(
                servers.delete,
                "berth:needs:delete",
                Nothing,
                None,
                "delete_need",
                "Take a need away",
                "What is held for it is given back in the same change.",
                status=204,
            ),
        },
        f"{prefix}/doctor": {
            "GET": Route(
                doctor.examine,
                "berth:doctor:examine",
                Nothing,
                wire_servers.Findings,
                "examine",
                "Find what is wrong with the books of servers",
                "Consumers without a server, servers and migrations with other allocations than they wrote, "
                "moves and orders that nobody finishes.",
                is_tagged=False,
            ),
        },
        f"{prefix}/doctor/repair": {
            "POST": Route(
                doctor.mend,
                "berth:doctor:repair",
                Nothing,
                wire_servers.Repairs,
                "repair",
                "Repair what can be repaired safely",
                "One by one, each looked at again in the turn in which it is repaired. A dry run unless "
                "`dry_run` is false.",
                body=bodies_servers.Repair,
            ),
        },
    }
