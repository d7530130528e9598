"""What a run was, read from its journal: tables and values."""
