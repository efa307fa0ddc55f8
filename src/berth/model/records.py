"""All kinds of records that a journal keeps, a region's and a cell's."""

from berth.model.orders import Agent, Instance, Outbox, Work
from berth.model.servers import Action, Aggregate, Counter, Flavor, Host, Image, Migration, Server

AnyRecord = (
    Action
    | Agent
    | Aggregate
    | Counter
    | Flavor
    | Host
    | Image
    | Instance
    | Migration
    | Outbox
    | Server
    | Work
)
