"""What all who read a log in this process share: live readers, and answers to the same question."""
