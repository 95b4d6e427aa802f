"""How an image is made: its recipe, its wheels and layers, the steps that run, the engine that takes it."""
