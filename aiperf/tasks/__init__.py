"""What is learnt: journal, ranks, master and score know no task, and rules ask this one."""
