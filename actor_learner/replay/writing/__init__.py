"""From steps to items of a table: observers say what an item is, `item_writer` writes it."""
