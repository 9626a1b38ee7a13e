"""From steps of all lanes to items of a table."""
