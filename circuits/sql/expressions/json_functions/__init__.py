"""JSON in SQL, which is text here: paths, the functions of the standard, and constructors."""
