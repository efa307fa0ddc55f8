"""What of a region talks to its cells: saga runs go down, progress comes up."""
