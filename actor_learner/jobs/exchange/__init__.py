"""What jobs tell one another: news, policy, reports and results, and the contract of the run."""
