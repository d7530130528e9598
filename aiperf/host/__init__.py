"""What the program stands on: processes, users, installed packages and environment variables of a host."""
