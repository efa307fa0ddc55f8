"""/servers: create, show, update and delete servers, and have things done to them."""
