"""The commands, one module each: it parses arguments, calls the library and renders the answer."""
