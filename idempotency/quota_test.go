package idempotency

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Callers that the handler refuses leave nothing: no key in Redis and no place in memory.
func TestRefusedCallersLeaveNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Minute})
	tokens := newTokensWith(t, store, Config{Quota: Quota{Operations: 10, Bytes: 1 << 20}})
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }}
	guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour})(h)
	for i := range 200 {
		wantStatus(t, "a request without a right", post(guarded, "x", KeyHeader+": k"+strconv.Itoa(i), "Authorization: guess "+strconv.Itoa(i)), 401)
	}
	h.wantRuns(t, 200)
	expect.Equal(t, "keys in Redis", redis.Client().DBSize(t.Context()).Val(), 0)
	expect.Equal(t, "principals that are counted", len(tokens.quotas.of), 0)
}

// Operations over the quota do not begin; those that have begun are answered as before.
func TestQuotaBoundsWhatAPrincipalHas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokensWith(t, store, Config{Quota: Quota{Operations: 3}})
		status := http.StatusCreated
		h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
		guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour})(h)
		ask := func(who, key string) int { return post(guarded, "x", KeyHeader+": "+key, "Authorization: "+who).Code }
		for _, key := range []string{"a", "b", "c"} {
			expect.Equal(t, "request "+key, ask("ann", key), 201)
		}
		refused := post(guarded, "x", KeyHeader+": d", "Authorization: ann")
		wantCode(t, "one request more", refused, wire.TooManyRequests)
		wait, _ := strconv.Atoi(refused.Header().Get("Retry-After"))
		if wait < 23*60*60 || wait > 26*60*60 {
			t.Errorf("Retry-After of one request more: got %d s, want about a day", wait)
		}
		h.wantRuns(t, 3)
		expect.Equal(t, "a repeat", ask("ann", "b"), 201)
		expect.Equal(t, "a request of another principal", ask("bob", "d"), 201)
		h.wantRuns(t, 4)
		status = http.StatusForbidden
		for range 5 {
			expect.Equal(t, "a request that is sent away", ask("bob", "e"), 403)
		}
		status = http.StatusCreated
		expect.Equal(t, "bob's second request", ask("bob", "f"), 201)
		expect.Equal(t, "bob's third request", ask("bob", "g"), 201)
		expect.Equal(t, "bob's fourth request", ask("bob", "h"), 429)
	})
}

// Issued tokens count for as long as they wait, and their claims count again. A claim of one is
// refused over the quota as well, and the token stays good.
func TestQuotaCountsIssuedTokens(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	tokens, others := newTokensWith(t, store, Config{Quota: Quota{Operations: 2}}), newTokens(t, store)
	first := issue(t, tokens, "")
	grant := claim(t, tokens, first, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
	_, err := tokens.Issue(t.Context(), "", "", 0)
	expect.Error(t, "Issue over the quota", err, ErrQuota)
	second := issue(t, others, "")
	_, err = tokens.Claim(t.Context(), second, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
	expect.Error(t, "Claim over the quota", err, ErrQuota)
	wantState(t, others, second, Issued)
	expect.Error(t, "Complete over the quota", tokens.Complete(t.Context(), first, grant.Owner, Answer{Status: 200}, 0), nil)
}

// The quota is free again when what fills it is gone from Redis, and not before.
func TestQuotaIsFreeAgainAfterTheRetention(t *testing.T) {
	t.Parallel()
	for _, retention := range []time.Duration{time.Second, time.Minute, 24 * time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q := newQuotas(Quota{Operations: 100})
			for range 100 {
				time.Sleep(retention / 200)
				if _, err := q.take("ann", retention); err != nil {
					t.Fatalf("an operation within the quota: %v", err)
				}
			}
			_, err := q.take("ann", retention)
			wait := redisstore.RetryAfter(err)
			if !errors.Is(err, ErrQuota) || wait < retention/2 || wait > retention/2+retention/16 {
				t.Fatalf("one more, with retention %v: got %v, want a wait of half of it, and up to a sixteenth more", retention, err)
			}
			expect.Equal(t, "spans that are remembered are few", len(q.of["ann"].spans) <= 34, true)
			time.Sleep(wait - 1)
			_, err = q.take("ann", retention)
			expect.Error(t, "a moment before the end of the wait", err, ErrQuota)
			time.Sleep(time.Nanosecond)
			_, err = q.take("ann", retention)
			expect.Error(t, "at the end of the wait", err, nil)
			time.Sleep(retention + retention/8)
			q.sweepLocked(time.Since(q.began))
			expect.Equal(t, "principals after the retention", len(q.of), 0)
		})
	}
}

// Whatever is taken, answered and undone, in any order, the count is what is there.
func TestQuotaIsASumOfWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		q := newQuotas(Quota{Operations: 1 << 30})
		var charges []charge
		for range 20_000 {
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			switch retention := time.Duration(1+random.IntN(1000)) * time.Second; {
			case random.IntN(3) > 0:
				c, _ := q.take("ann", retention)
				charges = append(charges, c)
			case random.IntN(2) > 0:
				q.answered("ann", retention, random.IntN(1000))
			case len(charges) > 0:
				at := random.IntN(len(charges))
				charges[at].undo()
				charges = append(charges[:at], charges[at+1:]...)
			}
			if used := q.of["ann"]; used != nil {
				sum, last := amount{}, time.Duration(0)
				for _, s := range used.spans {
					sum.plus(s.amount)
					if s.end <= last || s.operations < 0 || s.bytes < 0 {
						t.Fatalf("spans of a principal: got %v, want them in order, and none below 0", used.spans)
					}
					last = s.end
				}
				expect.MustEqual(t, "the sum", used.amount == sum, true)
			}
		}
	})
}

// What is counted in bytes is what Redis takes.
func TestQuotaCountsTheBytesThatRedisTakes(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Minute})
	taken := func() int64 {
		n, _ := strconv.ParseInt(redis.Client().InfoMap(t.Context(), "memory").Item("Memory", "used_memory"), 10, 64)
		return n
	}
	// The largest comes last: buffers of its connections shrink for some seconds after it.
	for _, row := range []struct{ length, many int }{{0, 300}, {200, 300}, {5_000, 300}, {200_000, 40}} {
		length, many := row.length, row.many
		tokens := newTokensWith(t, store, Config{Quota: Quota{Bytes: 1 << 30}})
		expect.Error(t, "FLUSHALL", redis.Client().FlushAll(t.Context()).Err(), nil)
		h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("a", length)) }}
		guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour})(h)
		wantStatus(t, "the first request", post(guarded, "x", KeyHeader+": first"), 200)
		before, counted := taken(), tokens.quotas.of[""].bytes
		for i := range many {
			wantStatus(t, "a request", post(guarded, "x", KeyHeader+": k"+strconv.Itoa(i)), 200)
		}
		counted = (tokens.quotas.of[""].bytes - counted) / int64(many)
		takes := (taken() - before) / int64(many)
		if off := float64(counted) / float64(takes); off < 0.7 || off > 1.6 {
			t.Errorf("an answer of %d bytes: counted %d, want about the %d that Redis takes", length, counted, takes)
		}
		t.Logf("an answer of %d bytes: counted %d, Redis takes %d", length, counted, takes)
	}
}

// Any number of principals takes bounded memory, and later ones are not refused.
func TestQuotaRemembersABoundedNumberOfPrincipals(t *testing.T) {
	t.Parallel()
	q := newQuotas(Quota{Operations: 1})
	before := heapInUse()
	for i := range maxPrincipals + 1000 {
		if _, err := q.take(fmt.Sprintf("principal-with-a-digest-%019d", i), time.Hour); err != nil {
			t.Fatalf("the first operation of principal %d: %v", i, err)
		}
	}
	expect.Equal(t, "principals that are counted", len(q.of), maxPrincipals)
	_, err := q.take(fmt.Sprintf("principal-with-a-digest-%019d", 7), time.Hour)
	expect.Error(t, "the second operation of one that is counted", err, ErrQuota)
	taken := heapInUse() - before
	t.Logf("%d principals take %d bytes each", maxPrincipals, taken/maxPrincipals)
	if taken > 64<<20 {
		t.Errorf("%d principals take %d bytes, want 64 MiB at most", maxPrincipals, taken)
	}
	runtime.KeepAlive(q)
}

// Principals whose operations have ended make room for new ones, however many were counted at once.
func TestQuotaCountsNewPrincipalsOnceOthersHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuotas(Quota{Operations: 1})
		for i := range maxPrincipals {
			_, err := q.take(strconv.Itoa(i), time.Hour)
			expect.Error(t, "the first operation of a principal", err, nil)
		}
		time.Sleep(2 * time.Hour)
		_, err := q.take("late", time.Hour)
		expect.Error(t, "the first operation of a late principal", err, nil)
		_, err = q.take("late", time.Hour)
		expect.Error(t, "its second operation", err, ErrQuota)
	})
}

// heapInUse is what is in use of it.
func heapInUse() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

func BenchmarkQuota(b *testing.B) {
	q := newQuotas(Quota{Operations: 1 << 40})
	for b.Loop() {
		if _, err := q.take("ann", 24*time.Hour); err != nil {
			b.Fatal(err)
		}
		q.answered("ann", 24*time.Hour, 200)
	}
}
