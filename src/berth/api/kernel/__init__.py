"""What every API stands on: HTTP, who is calling and what it may do, refusals, conditional reads."""
