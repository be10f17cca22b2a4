"""The store in a file of SQLite that several processes share."""
