package counter

// Totals are sums since New. They only grow.
type Totals struct {
	// counters that had gone back, or may have, and were moved past all values: see [MovePast]
	Moved int64
}

// Totals are for metrics.
func (c *Counters) Totals() Totals { return Totals{c.moved.Load()} }
