package frontdoor

// Quiet is how many connections have no request under way.
func (d *Door) Quiet() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.quiet.Len()
}
