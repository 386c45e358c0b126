"""Pure functions from API objects and plans to the lines and rows that the commands print."""
