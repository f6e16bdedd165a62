package jwtprincipal

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/issuer"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

// wired is an issuer's key set without a network, so that a test's clock can stand still.
type wired struct {
	is    *issuer.Issuer
	asked atomic.Int64
	fails atomic.Bool
	hangs atomic.Bool
}

func (w *wired) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked.Add(1)
	if w.hangs.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if w.fails.Load() {
		return nil, errors.New("connection refused")
	}
	answer := httptest.NewRecorder()
	_, _ = answer.Write(w.is.KeySet())
	return answer.Result(), nil
}

// wire returns a Verifier over it, and its log.
func wire(t testing.TB, is *issuer.Issuer) (*wired, *Verifier, *logtest.Text) {
	t.Helper()
	w, log := &wired{is: is}, &logtest.Text{}
	return w, open(t, Config{JWKS: "https://id.example/jwks.json", Client: &http.Client{Transport: w}, Logger: log.Logger()}), log
}

func wantNoKeys(t testing.TB, what string, v *Verifier, token string) {
	t.Helper()
	who, err := v.Principal(by(t, "Bearer "+token))
	expect.Error(t, what, err, idempotency.ErrNoKeys)
	expect.Equal(t, what+": the principal", who, "")
}

// A key that is not among those known has them read again, but not for each token that names one.
func TestNewKeyIsFetchedOnceItIsUsed(t *testing.T) {
	is := issuer.New(t)
	synctest.Test(t, func(t *testing.T) {
		w, v, _ := wire(t, is)
		old := is.Token("ann")
		ann := principal(t, v, old)
		is.Rotate("k2")
		expect.Equal(t, "a token of the new key", principal(t, v, is.Token("ann")), ann)
		expect.Equal(t, "how often the keys were read", w.asked.Load(), 2)
		wantRefused(t, "a token of the old key, which is gone", v, "not signed", "Bearer "+old)

		is.Rotate("k3")
		forged := is.Token("ann")
		is.Rotate("k4") // what was signed with k3 is of a key that nobody has seen
		for range 100 {
			wantRefused(t, "a token of an unknown key", v, "not signed", "Bearer "+forged)
		}
		expect.Equal(t, "how often the keys were read for 100 tokens of unknown keys", w.asked.Load(), 4)
		is.Rotate("k5")
		wantRefused(t, "a token of the next key, at once", v, "not signed", "Bearer "+is.Token("ann"))
		time.Sleep(10 * time.Second)
		expect.Equal(t, "a token of the next key, 10 s later", principal(t, v, is.Token("ann")), ann)
		expect.Equal(t, "how often the keys were read", w.asked.Load(), 5)
	})
}

// A token that names no key may be of one that is new.
func TestNewKeyIsFetchedForATokenWithoutAnID(t *testing.T) {
	is := issuer.New(t)
	synctest.Test(t, func(t *testing.T) {
		w, v, _ := wire(t, is)
		ann := principal(t, v, is.Token("ann"))
		is.Rotate("")
		expect.Equal(t, "a token of the new key", principal(t, v, is.Token("ann")), ann)
		forged := is.Token("ann")
		is.Rotate("")
		for range 100 {
			wantRefused(t, "a token of an unknown key", v, "not signed", "Bearer "+forged+"x")
		}
		expect.Equal(t, "how often the keys were read", w.asked.Load(), 4)
	})
}

// An issuer may give its next key the id of the last one, and a set may have two of one id.
func TestNewKeyOfAnOldIDIsFetched(t *testing.T) {
	is, other := issuer.New(t), issuer.New(t)
	synctest.Test(t, func(t *testing.T) {
		w, v, _ := wire(t, is)
		ann := principal(t, v, is.Token("ann"))
		is.Rotate("k1")
		expect.Equal(t, "a token of the new key", principal(t, v, is.Token("ann")), ann)
		for range 100 {
			wantRefused(t, "a forged token", v, "not signed", "Bearer "+other.Token("ann"))
		}
		expect.Equal(t, "how often the keys were read", w.asked.Load(), 4)
	})
}

// A signature of none of the keys may be of a key that is new, where they cannot be read: 401 would
// send the client to sign in again.
func TestTokenOfAKeyThatMayBeNewIsNotKnownWhileTheIssuerIsAway(t *testing.T) {
	for _, id := range []string{"", "k1"} {
		is := issuer.New(t)
		synctest.Test(t, func(t *testing.T) {
			w, v, _ := wire(t, is)
			is.Rotate(id)
			ann, old := principal(t, v, is.Token("ann")), is.Token("ann")
			is.Rotate(id)
			w.fails.Store(true)
			wantNoKeys(t, "a token of the next key, with the id "+id, v, is.Token("ann"))
			expect.Equal(t, "a token of the last key", principal(t, v, old), ann)
			w.fails.Store(false)
			time.Sleep(10 * time.Second)
			expect.Equal(t, "a token of the next key, once the issuer is back", principal(t, v, is.Token("ann")), ann)
		})
	}
}

// A key that the issuer has removed is forgotten without a token that says so.
func TestKeysAreReadAgainWhenTheyAreOld(t *testing.T) {
	is := issuer.New(t)
	synctest.Test(t, func(t *testing.T) {
		w, v, _ := wire(t, is)
		old := is.Token("ann")
		principal(t, v, old)
		is.Rotate("k2")
		time.Sleep(5*time.Minute - time.Second)
		principal(t, v, old)
		expect.Equal(t, "how often the keys were read in 5 minutes", w.asked.Load(), 1)
		time.Sleep(time.Second)
		wantRefused(t, "a token of a key that is gone", v, "not signed", "Bearer "+old)
		expect.Equal(t, "how often the keys were read", w.asked.Load(), 2)
	})
}

// Without keys nothing is known of a token: it is neither good nor bad. With some, those count.
func TestIssuerThatIsAway(t *testing.T) {
	is := issuer.New(t)
	synctest.Test(t, func(t *testing.T) {
		w, v, log := wire(t, is)
		w.fails.Store(true)
		if v.Load(t.Context()) == nil {
			t.Error("Load while the issuer is away: got no error")
		}
		wantNoKeys(t, "at the start", v, is.Token("ann"))
		w.hangs.Store(true)
		time.Sleep(time.Second)
		wantNoKeys(t, "while the issuer hangs", v, is.Token("ann"))
		w.hangs.Store(false)
		w.fails.Store(false)
		time.Sleep(time.Second)
		ann := principal(t, v, is.Token("ann"))

		w.fails.Store(true)
		time.Sleep(time.Hour)
		expect.Equal(t, "a token while the issuer is away again", principal(t, v, is.Token("ann")), ann)
		is.Rotate("k2")
		time.Sleep(time.Minute)
		wantNoKeys(t, "a token of a key that may be new", v, is.Token("ann"))
		w.fails.Store(false)
		time.Sleep(10 * time.Second)
		expect.Equal(t, "once it is back", principal(t, v, is.Token("ann")), ann)
		for line, times := range map[string]int{"the last ones count until they can": 2, "the keys of bearer tokens can be read again": 2} {
			expect.Equal(t, "lines of the log: "+line, strings.Count(log.String(), line), times)
		}
	})
}

// Of many requests one reads the keys; the others wait for it where they have none, else they go on
// with those that they have.
func TestOneRequestReadsTheKeys(t *testing.T) {
	is := issuer.New(t)
	synctest.Test(t, func(t *testing.T) {
		w, v, _ := wire(t, is)
		w.hangs.Store(true)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { wantNoKeys(t, "while the issuer hangs", v, is.Token("ann")) })
		}
		all.Wait()
		expect.Equal(t, "how often the keys were read for 50 requests at once", w.asked.Load(), 1)

		w.hangs.Store(false)
		time.Sleep(time.Second)
		principal(t, v, is.Token("ann"))
		w.hangs.Store(true)
		time.Sleep(5 * time.Minute)
		all.Go(func() { principal(t, v, is.Token("ann")) }) // reads the keys
		synctest.Wait()
		before := time.Now()
		principal(t, v, is.Token("ann"))
		expect.Equal(t, "how long a request waited for keys that it need not wait for", time.Since(before), 0)
		all.Wait()
	})
}

// A client that hangs up ends its own wait, and not the reading that others wait for.
func TestRequestThatEndsLeavesTheReadingToOthers(t *testing.T) {
	is := issuer.New(t)
	synctest.Test(t, func(t *testing.T) {
		w, v, _ := wire(t, is)
		w.hangs.Store(true)
		var all sync.WaitGroup
		all.Go(func() { wantNoKeys(t, "the one that reads", v, is.Token("ann")) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := v.Principal(by(t, "Bearer "+is.Token("ann")).WithContext(ctx))
		expect.Error(t, "one that was given up", err, idempotency.ErrNoKeys)
		all.Wait()
		expect.Equal(t, "how often the keys were read", w.asked.Load(), 1)
	})
}

func TestKeyFileThatChanges(t *testing.T) {
	is := issuer.New(t)
	path := is.File()
	synctest.Test(t, func(t *testing.T) {
		v := open(t, Config{JWKS: path})
		ann := principal(t, v, is.Token("ann"))
		is.Rotate("k2")
		expect.Error(t, "writing the key set", os.WriteFile(path, is.KeySet(), 0o600), nil)
		time.Sleep(time.Second)
		expect.Equal(t, "a token of the new key, a second later", principal(t, v, is.Token("ann")), ann)
		expect.Error(t, "writing the key set", os.WriteFile(path, []byte("{"), 0o600), nil)
		time.Sleep(time.Minute)
		expect.Equal(t, "while the file is broken", principal(t, v, is.Token("ann")), ann)
	})
}

// The keys come from the URL that was given, and no other.
func TestRedirectedKeySetIsNone(t *testing.T) {
	is := issuer.New(t)
	elsewhere := httptest.NewServer(http.RedirectHandler(is.URL, http.StatusFound))
	defer elsewhere.Close()
	v := open(t, Config{JWKS: elsewhere.URL})
	wantNoKeys(t, "behind a redirect", v, is.Token("ann"))
	expect.Equal(t, "how often the other URL was asked", is.Asked.Load(), 0)
	is.Away.Store(true)
	wantNoKeys(t, "an issuer that answers 500", open(t, Config{JWKS: is.URL}), is.Token("ann"))
}

// A key is its own parameters: a certificate beside it, as one with a negative serial number, says
// nothing that is needed, and does not take the key, or the whole set, with it. A key that is not
// taken is told with its id.
func TestKeyIsTakenByItsOwnParameters(t *testing.T) {
	is := issuer.New(t)
	w := func(change func(key map[string]any)) (*Verifier, *logtest.Text) {
		t.Helper()
		var set struct {
			Keys []map[string]any `json:"keys"`
		}
		expect.MustEqual(t, "the error of reading the key set", json.Unmarshal(is.KeySet(), &set), nil)
		change(set.Keys[0])
		text, err := json.Marshal(set)
		expect.MustEqual(t, "the error of writing the key set", err, nil)
		file, log := filepath.Join(t.TempDir(), "jwks.json"), &logtest.Text{}
		expect.MustEqual(t, "the error of writing the file", os.WriteFile(file, text, 0o600), nil)
		v, err := New(Config{JWKS: file, Logger: log.Logger()})
		if err != nil {
			return nil, log
		}
		return v, log
	}
	for name, change := range map[string]func(map[string]any){
		"certificates that are none":    func(key map[string]any) { key["x5c"] = []string{"AAAA"} },
		"certificates of another form":  func(key map[string]any) { key["x5c"] = 5 },
		"the digest of no certificate":  func(key map[string]any) { key["x5t"], key["x5t#S256"] = "AA", "AA" },
		"a URL of certificates":         func(key map[string]any) { key["x5u"] = "::" },
		"operations that have verify":   func(key map[string]any) { key["key_ops"] = []string{"verify"} },
		"a use that is that":            func(key map[string]any) { key["use"] = "sig" },
		"an alg that the token has too": func(map[string]any) {},
	} {
		v, log := w(change)
		if v == nil {
			t.Errorf("%s: the key is not taken: %s", name, log)
			continue
		}
		principal(t, v, is.Token("ann"))
		expect.Equal(t, name+": the log", log.String(), "")
	}
	for why, change := range map[string]func(map[string]any){
		"use is not sig":              func(key map[string]any) { key["use"] = "enc" },
		"key_ops do not have verify":  func(key map[string]any) { key["key_ops"] = []string{"encrypt"} },
		"alg is none that can be":     func(key map[string]any) { key["alg"] = "RSA-OAEP" },
		"it cannot be read":           func(key map[string]any) { key["kty"] = "XX" },
		"kid, use or key_ops are no ": func(key map[string]any) { key["use"] = 5 },
	} {
		v, log := w(change)
		expect.Equal(t, why+": the key is taken", v != nil, false)
		expect.Contains(t, "the log", log.String(), "a key of the set is not taken", "kid=", why)
	}
}

// Google's tokens have accounts.google.com with and without https://, and Keycloak's one of its two
// names: they are one issuer, and its callers are the same.
func TestSpellingsOfOneIssuerAreOne(t *testing.T) {
	is := issuer.New(t)
	of := func(issuers []string, iss string) (string, error) {
		return open(t, Config{JWKS: is.URL, Issuers: issuers}).Principal(by(t, "Bearer "+is.Token("ann", map[string]any{"iss": iss})))
	}
	both := []string{"https://accounts.google.com", "accounts.google.com"}
	first, err := of(both, both[0])
	expect.Error(t, "a token of the first spelling", err, nil)
	second, err := of(both, both[1])
	expect.Error(t, "a token of the second", err, nil)
	expect.Equal(t, "the callers of both", second, first)
	alone, err := of(both[:1], both[0])
	expect.Error(t, "a token of the one", err, nil)
	expect.Equal(t, "the caller where the first is the only one", alone, first)
	_, err = of(both[:1], both[1])
	expect.Error(t, "a token of another", err, idempotency.ErrUnauthorized)
}
