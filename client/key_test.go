package client_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// The key is shown with each request, and stands in no error and no log.
func TestClientShowsItsKey(t *testing.T) {
	key, wrong := access.NewKey(), access.NewKey()
	book, err := access.Open(t.Context(), access.Config{Keys: []access.Record{{ID: key.ID, Hash: key.Hash(), Principal: "orders", Role: access.Use, Names: access.Names{"orders:*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(book.Close)
	s := serveWith(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: book})
	var log bytes.Buffer
	with := func(key string) *client.Client {
		c, err := client.New(client.Config{URL: s.url, APIKey: key, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	if got, err := with(key.Text()).Incr(t.Context(), "orders:1"); err != nil || got != 1 {
		t.Errorf("%d, %v", got, err)
	}
	for _, row := range []struct {
		key, name string
		want      error
	}{{key.Text(), "bills:1", client.ErrForbidden}, {wrong.Text(), "orders:1", client.ErrUnauthorized}, {"", "orders:1", client.ErrUnauthorized}} {
		_, err := with(row.key).Incr(t.Context(), row.name)
		if !errors.Is(err, row.want) || !errors.Is(err, client.ErrRefused) || strings.Contains(err.Error()+log.String(), key.Secret) || strings.Contains(err.Error()+log.String(), wrong.Secret) {
			t.Errorf("%s: %v\n%s", row.name, err, log.String())
		}
	}
	for _, bad := range []string{"a b", "a\r\nX-Other: 1", "a\x00", "é"} {
		if _, err := client.New(client.Config{URL: s.url, APIKey: bad}); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A service that asks too often is told so as one that can not be served now: nothing was done, and when to ask again.
func TestClientIsToldThatItAsksTooOften(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"code":"too-many-requests","retryable":true}`))
	}))
	t.Cleanup(web.Close)
	c, err := client.New(client.Config{URL: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	_, err = c.Incr(t.Context(), "k")
	told, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrUnavailable) || told.RetryAfter.Seconds() != 7 || !told.Retryable {
		t.Errorf("%+v", err)
	}
}
