"""What `actor_learner.config` is made of: reading, checking and loading gin without TensorFlow."""
