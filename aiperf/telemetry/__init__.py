"""What a host and its devices do while a run goes on: recorded once a second, by a process of its own."""
