package access

// Len is how many are remembered.
func (g *Guesses) Len() int { return len(g.bad) }
