"""An architecture as a reader sees it."""
