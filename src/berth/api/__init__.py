"""The HTTP surface: routes, wire structs, version adapters, one error table per API."""
