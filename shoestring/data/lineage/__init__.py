"""The source files of a recipe, read again and compared with those of its data set."""
