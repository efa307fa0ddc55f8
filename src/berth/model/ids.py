"""Kinds of identity, kept apart by the type checker so that they are never interchanged."""

from typing import NewType

ProviderId = NewType("ProviderId", str)
"""A provider's uuid in canonical form: lower case, dashed."""

ConsumerId = NewType("ConsumerId", str)
"""A consumer's uuid: canonical where a path named it, and as its writer spelled it where a body did (36
characters of 0-9a-fA-F-). Two spellings are two consumers, as in Placement."""

AggregateId = NewType("AggregateId", str)
"""An aggregate's uuid, exactly as its writer spelled it."""

GroupId = NewType("GroupId", str)
"""A group's uuid in canonical form."""

ClassId = NewType("ClassId", int)
"""The number of a resource class. Names can change (microversions 1.2 to 1.6), numbers cannot."""

Row = NewType("Row", int)
"""Where a provider stands in the columns of a view. Reused after the provider is gone."""

Index = NewType("Index", int)
"""A position in the journal; 0 is the position before the first entry."""
