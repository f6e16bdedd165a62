package embedded

// The measured overhead besides the bytes of names and values: of a key with all its state, and of
// an element of a hash, list, set or sorted set.
const (
	keyBytes     = 600
	elementBytes = 80
)

// weight is how many bytes a key takes: as last measured, and all that was written to it since, as
// if none of it had replaced older data.
type weight struct{ measured, written int64 }

// weights are the weights of all keys. A key is measured when it is made, and again when half of it
// may be new, so that the cost is in proportion to the writes.
type weights struct {
	of    map[string]weight
	total int64
}

// small is how many bytes can be written to any key before it is measured again.
const small = 512

// touch is a key that a command may have changed.
type touch struct {
	key     string
	written int64 // bytes
}

// written is how many bytes a command with these arguments may add.
func written(args []string) (bytes int64) {
	for _, arg := range args {
		bytes += elementBytes + int64(len(arg))
	}
	return bytes
}

func (w *weights) note(t touch) {
	known := w.of[t.key]
	known.written += t.written
	w.total += t.written
	w.of[t.key] = known
}

// stale reports whether a key has to be measured.
func (w *weights) stale(key string) bool {
	known := w.of[key]
	return known.measured == 0 || known.written > small+known.measured/2
}

// set records the measured weight of a key; 0 = it is gone.
func (w *weights) set(key string, bytes int64) {
	known := w.of[key]
	w.total += bytes - known.measured - known.written
	if bytes == 0 {
		delete(w.of, key)
		return
	}
	w.of[key] = weight{measured: bytes}
}

func (w *weights) clear() { w.of, w.total = map[string]weight{}, 0 }

func (s *Store) weighLocked(key string) {
	switch {
	case !s.redis.Exists(key):
		s.weights.set(key, 0)
	case s.weights.stale(key):
		s.weights.set(key, s.sizeLocked(key))
	}
}

func (s *Store) sizeLocked(key string) int64 {
	size := int64(keyBytes + len(key))
	add := func(parts ...string) {
		size += elementBytes
		for _, part := range parts {
			size += int64(len(part))
		}
	}
	switch s.redis.Type(key) {
	case "string":
		value, _ := s.redis.Get(key)
		size += int64(len(value))
	case "hash":
		fields, _ := s.redis.HKeys(key)
		for _, field := range fields {
			add(field, s.redis.HGet(key, field))
		}
	case "zset":
		scores, _ := s.redis.SortedSet(key)
		for member := range scores {
			add(member)
		}
	case "list":
		items, _ := s.redis.List(key)
		for _, item := range items {
			add(item)
		}
	case "set":
		members, _ := s.redis.Members(key)
		for _, member := range members {
			add(member)
		}
	}
	return size
}

// bytesFit reports whether there is room for a command or script that may write that many bytes.
// Beyond the bound there is a twentieth for existing records, and another one for small writes to
// them: releasing a claim, replaying an answer, renewing a lease.
func (s *Store) bytesFit(written int64, firstExists, allExist func() bool) bool {
	slack := s.maxBytes / 20
	switch total := s.weights.total + written; {
	case total <= s.maxBytes:
		return true
	case total <= s.maxBytes+slack:
		return firstExists()
	case total <= s.maxBytes+2*slack:
		return written <= littleBytes && allExist()
	}
	return false
}

const littleBytes = 4 << 10
