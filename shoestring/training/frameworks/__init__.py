"""The code that families of one framework share."""
