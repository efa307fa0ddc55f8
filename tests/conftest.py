"""What all tests may ask for."""

pytest_plugins = ["tests.databases.fixtures"]
