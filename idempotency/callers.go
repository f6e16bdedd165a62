package idempotency

import (
	"hash/maphash"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxCallers = 8192 // requests that are remembered, once or twice
	warnEvery  = time.Minute
)

// callers notices that the same request with the same key comes from another principal: a client
// whose credential has changed since its first attempt, or changes with each request, as a
// signature does. Its repeats run again, so the log says so once a minute. It is safe for
// concurrent use.
type callers struct {
	seed maphash.Seed
	log  *slog.Logger

	mu          sync.Mutex
	now, before map[uint64]string // the operation, by what is the same for all principals
	next        time.Time         // of a line
}

func newCallers(log *slog.Logger) *callers {
	return &callers{seed: maphash.MakeSeed(), log: log, now: map[uint64]string{}}
}

// see notes a request with a client's own key.
func (c *callers) see(r *http.Request, route, key, fingerprint, operation string) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for _, part := range []string{route, key, fingerprint} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	if c.isOther(h.Sum64(), operation, time.Now()) {
		c.log.LogAttrs(r.Context(), slog.LevelWarn,
			"idempotency: the same request with the same key has come from several callers: "+
				"if they are one, whose credential was renewed or signs each request, its repeats run again",
			slog.String("route", route), slog.String("scheme", signs(r)),
			slog.String("set", "principal: {jwt: …} for bearer tokens that are renewed; "+
				"else principal-headers with a header that stays the same, such as the access key's id, set by a trusted proxy"))
	}
}

// isOther reports whether to say that another principal has sent the request as well.
func (c *callers) isOther(request uint64, operation string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, isKnown := c.now[request]
	if !isKnown {
		first, isKnown = c.before[request]
	}
	if !isKnown {
		if len(c.now) >= maxCallers {
			c.before, c.now = c.now, map[uint64]string{}
		}
		c.now[request] = operation
		return false
	}
	if first == operation || now.Before(c.next) {
		return false
	}
	c.next = now.Add(warnEvery)
	return true
}

// signing are the schemes of Authorization that have a new value in each request: a time, a nonce,
// or a count is signed with the rest.
var signing = []string{
	"AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "AWS", "GOOG4-HMAC-SHA256", "GOOG4-RSA-SHA256", "ACS3-HMAC-SHA256",
	"OSS4-HMAC-SHA256", "SDK-HMAC-SHA256", "TC3-HMAC-SHA256", "SharedKey", "Signature", "Digest", "Hawk", "HMAC", "MAC", "OAuth",
}

// signs is the scheme of a request that is signed anew each time, "-" for any other: without a
// scheme the header can be a secret from its first letter on.
func signs(r *http.Request) string {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if at := slices.IndexFunc(signing, func(s string) bool { return strings.EqualFold(s, scheme) }); at >= 0 {
		return signing[at]
	}
	return "-"
}
