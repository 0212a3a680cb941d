"""How good, how robust and how fast a network is, and pictures of what it learnt."""
