"""Images put together: a base, layers of wheels, and on top the small layers that the recipe's steps make."""
