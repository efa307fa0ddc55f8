"""The spellings of a uuid: which are taken for one, and which of them is the canonical one."""

import re
import uuid

_DASHED = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


def is_dashed(text: str) -> bool:
    """Whether this is a uuid as it is usually written, in any case."""
    return _DASHED.match(text) is not None


def is_uuid(text: str) -> bool:
    """``is_uuid_like``, quick for the usual spelling."""
    return is_dashed(text) or is_uuid_like(text)


def is_uuid_like(value: object) -> bool:
    """Whether this is a uuid in any spelling: any case, with or without dashes, braces or urn:uuid:."""
    if not isinstance(value, str):
        return False
    try:
        digits = uuid.UUID(value).hex
    except ValueError:
        return False
    bare = value.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()
    return digits == bare


def canonical(text: str) -> str:
    """What ``is_uuid`` accepts, in lower case and with dashes."""
    return text.lower() if is_dashed(text) else str(uuid.UUID(text))
