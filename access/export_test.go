package access

// Len is how many are remembered, and held.
func (g *Lockout) Len() int { return len(g.bad) + len(g.held) + g.all }
