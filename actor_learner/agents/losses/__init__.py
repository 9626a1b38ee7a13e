"""Arithmetic of losses: advantages, TD errors, targets, as functions of tensors."""
