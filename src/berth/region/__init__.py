"""The region's side of its cells: orders go down, and what came of them comes up."""
