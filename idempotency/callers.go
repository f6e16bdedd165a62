package idempotency

import (
	"context"
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

	one bool // all are meant to be one

	mu          sync.Mutex
	now, before map[uint64]string // the operation, by what is the same for all principals
	next        time.Time         // of a line
	nameless    time.Time         // of the next line about callers without a name
}

func newCallers(log *slog.Logger, one bool) *callers {
	return &callers{seed: maphash.MakeSeed(), log: log, one: one, now: map[uint64]string{}}
}

// WarnNameless logs, once a minute at most, that a request with a client's own key on a route does
// not say who sends it, if its principal is "": all such callers are one. [Tokens.Middleware] calls
// it; it is for other guards that make a [Key] for a caller. With [Config].OneCaller it does
// nothing.
func (t *Tokens) WarnNameless(ctx context.Context, principal, route string) {
	if c := t.callers; principal == "" && !c.one && c.isDue(&c.nameless, time.Now()) {
		c.log.LogAttrs(ctx, slog.LevelWarn,
			"idempotency: a request with a key does not say who sends it: all such callers are one, and with one key they get each "+
				"other's answers",
			slog.String("route", route),
			slog.String("set", "what tells callers apart: principal-headers, principal: of a gateway's route, or Config.Principal; "+
				"principal-headers empty, or Config.OneCaller, if they are meant to be one"))
	}
}

// isDue reports whether to log a line that comes once a minute, and notes when the next may come.
func (c *callers) isDue(next *time.Time, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(*next) {
		return false
	}
	*next = now.Add(warnEvery)
	return true
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
