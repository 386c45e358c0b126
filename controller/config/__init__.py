"""The settings of the program: modes, command line flags and environment variables."""
