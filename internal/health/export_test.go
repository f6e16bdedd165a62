package health

import "time"

// LookedLongAgo has the last look be longer ago than is remembered.
func (c *Checker) LookedLongAgo() {
	c.Forget()
	c.looked = time.Now().Add(-remembered)
}
