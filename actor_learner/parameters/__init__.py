"""Parameters: how the variables of a policy travel from the learner to the actors."""
