"""What can be learned from the folder of a study without training: replay, calibration, video."""
