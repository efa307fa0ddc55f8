"""Rules for custom resource classes and custom traits. Standard ones cannot be changed or removed."""

from berth.model.commands import (
    CreateResourceClass,
    CreateTrait,
    DeleteResourceClass,
    DeleteTrait,
    RenameResourceClass,
)
from berth.model.events import Event, Named, ResourceClassChanged, TraitChanged
from berth.model.ids import ClassId
from berth.model.placement import STANDARD_TRAITS, is_custom_name
from berth.model.rejections import (
    NameNotCustom,
    Rejection,
    ResourceClassExists,
    ResourceClassInUse,
    ResourceClassIsStandard,
    ResourceClassNotFound,
    TraitInUse,
    TraitIsStandard,
    TraitsNotFound,
)
from berth.view import View


def create_class(view: View, command: CreateResourceClass, now_s: int) -> list[Event] | Rejection:
    if view.classes.id_of(command.name) is not None:
        return [] if command.exist_ok else ResourceClassExists(command.name)
    if not is_custom_name(command.name):
        return NameNotCustom(command.name)
    return [ResourceClassChanged(view.classes.next_id(), None, Named(command.name, now_s))]


def rename_class(view: View, command: RenameResourceClass, now_s: int) -> list[Event] | Rejection:
    found = _custom_class(view, command.name)
    if isinstance(found, Rejection):
        return found
    id, before = found
    if command.new_name == command.name:
        return []
    if view.classes.id_of(command.new_name) is not None:
        return ResourceClassExists(command.new_name)
    if not is_custom_name(command.new_name):
        return NameNotCustom(command.new_name)
    return [ResourceClassChanged(id, before, Named(command.new_name, before.created_at_s))]


def delete_class(view: View, command: DeleteResourceClass, now_s: int) -> list[Event] | Rejection:
    found = _custom_class(view, command.name)
    if isinstance(found, Rejection):
        return found
    id, before = found
    if len(view.classes.column(id)):
        return ResourceClassInUse(command.name)
    return [ResourceClassChanged(id, before, None)]


def _custom_class(view: View, name: str) -> tuple[ClassId, Named] | Rejection:
    """The class of this name, if it is one that may change."""
    id = view.classes.id_of(name)
    if id is None:
        return ResourceClassNotFound(name)
    created_at_s = view.classes.created_at_s(id)
    if created_at_s is None:
        return ResourceClassIsStandard(name)
    return id, Named(name, created_at_s)


def create_trait(view: View, command: CreateTrait, now_s: int) -> list[Event] | Rejection:
    if view.has_trait(command.name):
        return []
    if not is_custom_name(command.name):
        return NameNotCustom(command.name)
    return [TraitChanged(command.name, None, now_s)]


def delete_trait(view: View, command: DeleteTrait, now_s: int) -> list[Event] | Rejection:
    if not view.has_trait(command.name):
        return TraitsNotFound((command.name,))
    if command.name in STANDARD_TRAITS:
        return TraitIsStandard(command.name)
    if view.rows_with_trait(command.name):
        return TraitInUse(command.name)
    return [TraitChanged(command.name, view.custom_traits[command.name], None)]
