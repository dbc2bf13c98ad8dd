"""What lowerings pass on, and how trees are made of trees."""
