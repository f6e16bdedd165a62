package jwtprincipal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
)

const (
	maxKeys     = 1 << 20 // bytes of a key set
	readTimeout = 3 * time.Second
	burst       = 3 // readings in a row for keys that are missing
)

// keySet is the issuer's keys, cached. The request that finds them old, or without its key, reads
// them again, one request at a time; others go on with what is there. It is safe for concurrent
// use.
type keySet struct {
	config Config
	age    time.Duration // after which the keys are read again
	again  time.Duration // after which that is tried again if it failed

	unknown *rate.Limiter // of readings for keys that are missing

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	others []otherKey    // of the last reading that are not taken
	err    error         // of the last reading
	tried  time.Time     // when that ended; zero = never
	reader chan struct{} // closed at the end of the reading under way; nil = there is none
}

func newKeySet(config Config) *keySet {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if !config.IsURL() {
		return keySetOf(config, 5*time.Second, time.Second)
	}
	if config.Client == nil {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: readTimeout}
		stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		config.Client = &http.Client{Transport: transport, CheckRedirect: stay}
	}
	return keySetOf(config, 5*time.Minute, 10*time.Second)
}

func keySetOf(config Config, age, again time.Duration) *keySet {
	return &keySet{config: config, age: age, again: again, unknown: rate.NewLimiter(rate.Every(again), burst)}
}

// try calls fits with the keys that can have made a signature, those of an id, or for a token that
// names none, all: it reports whether one of them has. If none has, the keys are read again, since
// an issuer may have a new one, perhaps of an old id. The error is [idempotency.ErrNoKeys]: whether
// there is such a key is not known.
func (s *keySet) try(ctx context.Context, id string, fits func([]jose.JSONWebKey) bool) error {
	for isRead := false; ; isRead = true {
		s.mu.Lock()
		found, tried := s.withID(id), s.tried
		s.mu.Unlock()
		done := fits(found)

		s.mu.Lock()
		err, reader, meanwhile := s.err, s.reader, !s.tried.Equal(tried)
		mine := reader == nil && !isRead && !meanwhile && s.dueLocked(done)
		if mine {
			s.reader = make(chan struct{})
		}
		s.mu.Unlock()
		switch {
		case mine:
			s.read(ctx)
		case done:
			return nil
		case meanwhile && !isRead:
		case reader != nil && !isRead:
			if err := wait(ctx, reader); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("%w: %w", idempotency.ErrNoKeys, err)
		default:
			return nil
		}
	}
}

// dueLocked reports whether to read the keys for a request, which one of them fits or none.
func (s *keySet) dueLocked(fits bool) bool {
	since := time.Since(s.tried)
	switch {
	case since >= s.age:
		return true
	case s.keys == nil:
		return since >= time.Second
	case s.err != nil && since >= s.again:
		return true
	}
	return !fits && s.unknown.Allow()
}

func wait(ctx context.Context, reader <-chan struct{}) error {
	select {
	case <-reader:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", idempotency.ErrNoKeys, context.Cause(ctx))
	}
}

func (s *keySet) withID(id string) (found []jose.JSONWebKey) {
	for _, key := range s.keys {
		if id == "" || key.KeyID == id {
			found = append(found, key)
		}
	}
	return found
}

// load reads the keys, or waits for the reading under way.
func (s *keySet) load(ctx context.Context) error {
	s.mu.Lock()
	reader := s.reader
	if reader == nil {
		s.reader = make(chan struct{})
	}
	s.mu.Unlock()
	if reader == nil {
		s.read(ctx)
	} else if err := wait(ctx, reader); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// read reads the keys for all requests, whatever becomes of the one that does it. The caller has
// set reader.
func (s *keySet) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	text, err := s.fetch(ctx)
	var keys []jose.JSONWebKey
	if err == nil {
		var others []otherKey
		keys, others, err = parseKeys(text)
		s.tell(ctx, others)
	}
	if err != nil {
		err = fmt.Errorf("the keys of bearer tokens cannot be read: %w", err)
	}
	s.mu.Lock()
	before := s.err
	if s.err = err; err == nil {
		s.keys = keys
	}
	close(s.reader)
	s.reader, s.tried = nil, time.Now()
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.config.Logger.ErrorContext(ctx, "the keys of bearer tokens cannot be read; the last ones count until they can",
			"jwks", s.config.JWKS, "error", err)
	case err == nil && before != nil:
		s.config.Logger.InfoContext(ctx, "the keys of bearer tokens can be read again", "jwks", s.config.JWKS, "keys", len(keys))
	}
}

// tell logs the keys that are not taken, if they are others than the last time.
func (s *keySet) tell(ctx context.Context, others []otherKey) {
	s.mu.Lock()
	told := slices.Equal(others, s.others)
	s.others = others
	s.mu.Unlock()
	if told {
		return
	}
	for _, key := range others {
		s.config.Logger.WarnContext(ctx, "a key of the set is not taken", "jwks", s.config.JWKS, "kid", names.Printable(key.id), "why", key.why)
	}
}

func (s *keySet) fetch(ctx context.Context) ([]byte, error) {
	if !s.config.IsURL() {
		file, err := os.Open(s.config.JWKS)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return whole(file)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.JWKS, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := s.config.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %d", s.config.JWKS, answer.StatusCode)
	}
	return whole(answer.Body)
}

func whole(from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxKeys+1))
	if err == nil && len(text) > maxKeys {
		err = fmt.Errorf("a key set has up to %d bytes", maxKeys)
	}
	return text, err
}

// parseKeys returns the public keys of a set (RFC 7517) that can verify a signature, and why the
// others are none: a secret, for one, would let all who verify sign as well.
func parseKeys(text []byte) (keys []jose.JSONWebKey, others []otherKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, nil, errors.New("not a key set (RFC 7517), which is JSON with a list of keys")
	}
	for _, one := range set.Keys {
		key, why := parseKey(one)
		if why != "" {
			others = append(others, otherKey{key.KeyID, why})
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, others, errors.New("it has no public key that a signature can be verified with")
	}
	return keys, others, nil
}

// otherKey is a key of a set that verifies nothing.
type otherKey struct{ id, why string }

// parseKey reads a key by its own parameters. Its certificates say nothing that is needed, and one
// that cannot be read would take the key with it.
func parseKey(text json.RawMessage) (key jose.JSONWebKey, why string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return key, "it is no JSON object"
	}
	for _, certificate := range []string{"x5c", "x5t", "x5t#S256", "x5u"} {
		delete(fields, certificate)
	}
	var told struct {
		ID         string   `json:"kid"`
		Use        string   `json:"use"`
		Operations []string `json:"key_ops"`
	}
	bare, err := json.Marshal(fields)
	if err != nil || json.Unmarshal(bare, &told) != nil {
		return key, "its kid, use or key_ops are no texts"
	}
	err = key.UnmarshalJSON(bare)
	key.KeyID = told.ID
	public := key.Public()
	switch {
	case err != nil:
		return key, "it cannot be read: " + err.Error()
	case told.Use != "" && told.Use != "sig":
		return key, "its use is not sig"
	case told.Operations != nil && !slices.Contains(told.Operations, "verify"):
		return key, "its key_ops do not have verify"
	case key.Algorithm != "" && !slices.Contains(Algorithms(), key.Algorithm):
		return key, "its alg is none that can be verified here"
	case !public.Valid():
		return key, "it is no public key"
	}
	return public, ""
}
