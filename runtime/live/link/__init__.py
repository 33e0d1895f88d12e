"""What the agent and a process send to each other, and the socket pair between them."""
