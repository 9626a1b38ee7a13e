"""How steps stand in the columns of a table, by one codec: shared by writing and reading."""
