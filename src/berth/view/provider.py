"""A provider as a view holds it: its own facts and its place in the forest."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from berth.model.events import Stamp
from berth.model.ids import AggregateId, ClassId, ConsumerId, ProviderId, Row
from berth.model.placement import Inventory


class ProviderRecord:
    """A provider. Changed by the view alone; everyone else reads.

    The ``revision`` of a root changes with everything another could have cached about any provider of its
    tree; below a root it means nothing. It is not part of the state: taking an event back does not take the
    revision back.
    """

    __slots__ = (
        "_shape",
        "_tree",
        "aggregates",
        "children",
        "consumers",
        "id",
        "inventories",
        "name",
        "parent",
        "revision",
        "root",
        "row",
        "stamp",
        "traits",
        "used",
    )

    def __init__(self, id: ProviderId, row: Row, name: str) -> None:
        self.id = id
        self.row = row
        self.name = name
        self.parent: ProviderRecord | None = None
        self.root = self
        self.children: dict[Row, ProviderRecord] = {}
        self.stamp = Stamp(0, 0, 0)
        self.inventories: dict[ClassId, Inventory] = {}
        self.used: dict[ClassId, int] = {}
        self.traits: tuple[str, ...] = ()
        self.aggregates: tuple[AggregateId, ...] = ()
        self.consumers: set[ConsumerId] = set()
        self.revision = 0
        self._tree: tuple[ProviderRecord, ...] | None = None
        self._shape: TreeShape | None = None

    @property
    def generation(self) -> int:
        return self.stamp.generation

    def subtree(self) -> list["ProviderRecord"]:
        """This provider and all below it, parents before children, siblings by row."""
        found = [self]
        for record in found:
            found.extend(record.children[row] for row in sorted(record.children))
        return found

    def tree(self) -> tuple["ProviderRecord", ...]:
        """The whole tree this provider stands in, from its root down."""
        root = self.root
        if root._tree is None:
            root._tree = tuple(root.subtree())
        return root._tree

    def shape(self) -> "TreeShape":
        """How the tree this provider stands in is built, for those who compare trees."""
        root = self.root
        if root._shape is None:
            root._shape = TreeShape(root.tree())
        return root._shape

    def place(self, parent: "ProviderRecord | None") -> None:
        """Stand below ``parent`` (or alone), and bring everything below along."""
        self._leave()
        self.parent = parent
        root = self if parent is None else parent.root
        if parent is not None:
            parent.children[self.row] = self
        for record in self.subtree():
            record.root = root
        root._forget()

    def unplace(self) -> None:
        self._leave()
        self.parent = None

    def _leave(self) -> None:
        self.root._forget()
        self._forget()
        if self.parent is not None:
            del self.parent.children[self.row]

    def _forget(self) -> None:
        """The tree below is not what it was."""
        self._tree = self._shape = None
        self.revision += 1


class TreeShape:
    """A tree by position: ``parents`` gives for each provider, from the root down, where its parent stands.
    ``pick`` takes from anything indexed by row what belongs to the tree, in the same order. ``ids`` are those
    of its providers, as they go into answers."""

    __slots__ = ("ids", "parents", "pick", "records")

    def __init__(self, tree: tuple[ProviderRecord, ...]) -> None:
        self.records = tree
        self.ids = tuple(record.id.encode() for record in tree)
        position = {record.row: number for number, record in enumerate(tree)}
        self.parents = tuple(position[record.parent.row] if record.parent else -1 for record in tree)
        rows = [record.row for record in tree]
        # A single item would be taken out of its tuple.
        self.pick: Callable[[Sequence[Any]], tuple[Any, ...]] = (
            operator.itemgetter(*rows) if len(rows) > 1 else lambda items: (items[rows[0]],)
        )
