"""/compute/v2.1: servers and what belongs to them, in the words of OpenStack Nova's API."""
