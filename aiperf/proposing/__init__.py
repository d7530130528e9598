"""What a group is given next: trials, their hyper-parameters and their length."""
