"""What all tests may ask for."""

from hypothesis import settings

pytest_plugins = ["tests.databases.fixtures"]

# No test asserts a time: an example that takes long on a busy machine is no failure.
settings.register_profile("berth", deadline=None)
settings.load_profile("berth")
