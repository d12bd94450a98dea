"""The built-in toolkit `sql`: tables of an SQLite file or of a Postgres server."""
