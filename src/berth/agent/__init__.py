"""The process on a host: says what the host has, carries orders out, and says what came of them."""
