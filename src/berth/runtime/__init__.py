"""What differs from one run to the next: time, randomness, settings, telemetry. Nothing else asks for it."""
