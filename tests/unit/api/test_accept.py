"""The Accept header: what may be answered, and in which form errors come."""

import pytest

from berth.api.kernel.http import accepts_json, effective_accept, error_format

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("accept", "is_json", "form"),
    [
        (None, True, "json"),
        ("", True, "json"),
        ("*/*", True, "json"),
        ("application/json", True, "json"),
        ("text/html", False, "html"),
        ("text/plain", False, "plain"),
        ("application/*", True, "json"),
        ("text/html, application/json", True, "html"),
        ("text/html;q=0.5, application/json", True, "json"),
        ("application/json;q=0, */*", False, "html"),
        ("text/plain, */*;q=0.1", True, "html"),
        ("application/json; charset=utf-8", False, "plain"),
        ("nonsense", True, "html"),
    ],
)
def test_the_best_accepted_type_is_chosen(accept: str | None, is_json: bool, form: str) -> None:
    header = effective_accept(accept)
    assert accepts_json(header) is is_json
    assert error_format(header) == form
