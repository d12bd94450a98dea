"""Commands about capabilities and the agents that offer them."""
