"""The OpenStack Placement API, microversions 1.0 to 1.39, on the wire exactly as its clients know it."""
