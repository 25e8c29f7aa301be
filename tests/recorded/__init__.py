"""Trees that earlier versions recorded, and the tests that later ones still read, verify and continue them."""
