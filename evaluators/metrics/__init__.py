"""Pure functions on arrays and tables: no files, no task names, each with the source of its definition."""
