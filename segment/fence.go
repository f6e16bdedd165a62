package segment

// fence is the highest id seen of one residue class: of ids with the same remainder by delta.
type fence struct{ delta, residue, high int64 }

// fences are those of one tag. A plain source has one class. A source of several stores whose ids
// have a distance has one for each store: their numbers interleave, so that a range of one store
// may well lie below another's, but never below an earlier one of its own.
type fences []fence

// maxFences is how many classes of a tag are kept. With more, all become one, and ranges only rise.
const maxFences = 1024

// conflict finds a fence that a range does not lie wholly above.
func (f fences) conflict(lo, delta int64) (seen int64, found bool) {
	for _, one := range f {
		if lo <= one.high && one.meets(lo, delta) {
			return one.high, true
		}
	}
	return 0, false
}

// meets reports whether the ids lo, lo+delta, … and those of the fence's class, both continued for
// ever, have one in common: whether they leave the same residue when divided by the greatest
// divisor of both distances.
func (f fence) meets(lo, delta int64) bool {
	return (lo-f.residue)%divisor(f.delta, delta) == 0
}

// divisor is the greatest common divisor of two numbers.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// raised returns the fences after a range up to last.
func (f fences) raised(last, delta int64) fences {
	for i, one := range f {
		if one.delta == delta && one.residue == last%delta {
			f[i].high = max(last, one.high)
			return f
		}
	}
	if len(f) < maxFences {
		return append(f, fence{delta, last % delta, last})
	}
	high := last
	for _, one := range f {
		high = max(high, one.high)
	}
	return append(f[:0], fence{1, 0, high})
}
