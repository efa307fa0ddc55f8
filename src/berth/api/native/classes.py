"""Resource classes by name, for filters; and all names at once, for events."""

from berth.api.kernel.codes import BAD_PARAMETER
from berth.api.kernel.problem import Problem
from berth.model.ids import ClassId
from berth.view import View


def class_named(view: View, name: str) -> ClassId:
    """A class that a filter names. One that does not exist is a mistake, not an empty list."""
    id = view.classes.id_of(name)
    if id is None:
        raise Problem(400, f"resource_class: there is no resource class {name!r}.", BAD_PARAMETER)
    return id


def class_names(view: View) -> dict[ClassId, str]:
    return {id: view.classes.name_of(id) for id in view.classes.ids()}
