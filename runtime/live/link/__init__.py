"""What the agent and a process say to each other, and the socket pair between them."""
