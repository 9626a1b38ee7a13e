"""What a run shows and leaves behind: live view, metric files, TensorBoard, curves, video."""
