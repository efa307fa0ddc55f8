"""Resource classes: their names, their numbers and their columns."""

from collections.abc import Iterator

from berth.model.events import Named
from berth.model.ids import ClassId
from berth.model.vocabulary import FIRST_CUSTOM_CLASS, STANDARD_CLASSES
from berth.view.column import Column


class ResourceClasses:
    """Standard classes, always there, and custom ones as events made them."""

    __slots__ = ("_columns", "_custom", "_id_of", "_name_of", "revision")

    def __init__(self) -> None:
        self._name_of = {ClassId(number): name for number, name in enumerate(STANDARD_CLASSES)}
        self._id_of = {name: id for id, name in self._name_of.items()}
        self._custom: dict[ClassId, Named] = {}
        self._columns: dict[ClassId, Column] = {}
        # Changes with every name; like a provider's revision, it is for caches and not part of the state.
        self.revision = 0

    def id_of(self, name: str) -> ClassId | None:
        return self._id_of.get(name)

    def name_of(self, id: ClassId) -> str:
        return self._name_of[id]

    def created_at_s(self, id: ClassId) -> int | None:
        """When a custom class was created; None for a standard one."""
        named = self._custom.get(id)
        return named.created_at_s if named else None

    def custom(self) -> Iterator[tuple[ClassId, int]]:
        """Custom classes with the second in which each was created."""
        return ((id, named.created_at_s) for id, named in self._custom.items())

    def ids(self) -> Iterator[ClassId]:
        """All classes, standard ones first."""
        return iter(sorted(self._name_of))

    def next_id(self) -> ClassId:
        return ClassId(max(self._custom, default=FIRST_CUSTOM_CLASS - 1) + 1)

    def column(self, id: ClassId) -> Column:
        column = self._columns.get(id)
        if column is None:
            column = self._columns[id] = Column()
        return column

    def in_inventories(self) -> Iterator[ClassId]:
        """The classes of which any provider has inventory."""
        return (id for id, column in self._columns.items() if len(column))

    def change(self, id: ClassId, after: Named | None) -> None:
        self.revision += 1
        before = self._custom.pop(id, None)
        if before is not None:
            del self._name_of[id], self._id_of[before.name]
        if after is not None:
            self._custom[id] = after
            self._name_of[id] = after.name
            self._id_of[after.name] = id
        else:
            self._columns.pop(id, None)

    def state(self) -> dict[str, object]:
        return {
            "custom": dict(sorted(self._custom.items())),
            "columns": {id: column.by_row() for id, column in sorted(self._columns.items()) if len(column)},
        }
