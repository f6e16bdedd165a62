//go:build check

package chaos

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/idempotency"
)

// naive guards a handler as many do: a key that expires is set if it is not there, and replaced by
// the answer when that is known. What is wrong with it: the key expires while it is not known what
// became of the first attempt, and a write counts as done before a replica has it.
type naive struct {
	redis *redis.Client
	lease time.Duration
	next  http.Handler
}

func newNaive(url string, lease time.Duration, next http.Handler) (http.Handler, error) {
	client, err := chaostest.PeerClient(url)
	if err != nil {
		return nil, err
	}
	return &naive{client, lease, next}, nil
}

func (n *naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(idempotency.KeyHeader) + r.Header.Get(idempotency.TokenHeader)
	const running = "running"
	first, err := n.redis.SetNX(r.Context(), key, running, n.lease).Result()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "store-unavailable")
		return
	}
	if first {
		record := httptest.NewRecorder()
		n.next.ServeHTTP(record, r)
		_ = n.redis.Set(r.Context(), key, record.Body.String(), time.Hour).Err()
		w.WriteHeader(record.Code)
		_, _ = w.Write(record.Body.Bytes())
		return
	}
	stored, err := n.redis.Get(r.Context(), key).Result()
	switch {
	case errors.Is(err, redis.Nil) || err == nil && stored == running:
		refuse(w, http.StatusConflict, "idempotency-in-progress")
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "store-unavailable")
	default:
		w.Header().Set("Idempotent-Replayed", "true")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, stored)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"code":"`+code+`"}`)
}
