"""Training that is only pretended: how long it would take and what would come of it, as assumptions say."""
