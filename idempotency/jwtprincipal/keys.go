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
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"github.com/coatcheck/coatcheck/idempotency"
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
	err    error         // of the last reading
	tried  time.Time     // when that ended; zero = never
	reader chan struct{} // closed at the end of the reading under way; nil = there is none
}

func newKeySet(config Config) *keySet {
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
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
		keys, err = parseKeys(text)
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

// parseKeys returns the public keys of a set (RFC 7517) that can verify a signature. It passes over
// others: a secret would let all who verify sign as well.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, errors.New("not a key set (RFC 7517), which is JSON with a list of keys")
	}
	keys := []jose.JSONWebKey{}
	for _, one := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(one) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		if public := key.Public(); public.Valid() {
			keys = append(keys, public)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no public key that a signature can be verified with")
	}
	return keys, nil
}
