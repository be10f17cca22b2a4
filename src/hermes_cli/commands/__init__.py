"""One module a command; `root` holds the table that finds them."""
