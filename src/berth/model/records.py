"""All kinds of records that a journal keeps, a region's and a cell's."""

from berth.model.clusters import Cluster
from berth.model.identity import RevokedToken
from berth.model.saga_runs import Agent, HostTree, Instance, Outbox, SagaRun, Term
from berth.model.servers import Action, Aggregate, Counter, Flavor, Host, Image, Migration, QuotaSet, Server

AnyRecord = (
    Action
    | Agent
    | Aggregate
    | Cluster
    | Counter
    | Flavor
    | Host
    | HostTree
    | Image
    | Instance
    | Migration
    | Outbox
    | QuotaSet
    | RevokedToken
    | Server
    | Term
    | SagaRun
)
