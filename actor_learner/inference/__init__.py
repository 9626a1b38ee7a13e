"""How an actor gets its actions: from a policy in this process, or from another one."""
