"""Finding providers and allocation candidates. Reads the view, changes nothing."""
