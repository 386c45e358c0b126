"""One module for each group of commands. A module is imported when its command is called."""
