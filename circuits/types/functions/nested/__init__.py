"""Functions of lists, structs and maps, and of the texts that describe them: JSON and CSV."""
