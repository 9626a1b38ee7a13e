"""How steps stand in the cells of a table: shared by writing and reading."""
