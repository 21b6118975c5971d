"""The model families, a folder each. `shoestring.data.families` names them."""
