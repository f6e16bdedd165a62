package client_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

// The key is shown with each request, and stands in no error and no log.
func TestClientShowsItsKey(t *testing.T) {
	key, wrong := access.NewKey(), access.NewKey()
	book, err := access.Open(t.Context(), access.Config{Keys: []access.Record{{ID: key.ID, Hash: key.Hash(), Principal: "orders", Role: access.Use, Names: access.Names{"orders:*"}}}})
	must(t, "opening the keys", err)
	t.Cleanup(book.Close)
	s := serveWith(t, server.Config{Store: open(t, "embedded:"), Access: book})
	var log bytes.Buffer
	with := func(key string) *client.Client {
		return connect(t, s.url, func(config *client.Config) {
			config.APIKey, config.Logger = key, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
	}
	got, err := with(key.Text()).Incr(t.Context(), "orders:1")
	succeeds(t, "Incr with the key", err)
	expect.Equal(t, "Incr with the key", got, 1)
	for _, row := range []struct {
		key, name string
		want      error
	}{{key.Text(), "bills:1", client.ErrForbidden}, {wrong.Text(), "orders:1", client.ErrUnauthorized}, {"", "orders:1", client.ErrUnauthorized}} {
		_, err := with(row.key).Incr(t.Context(), row.name)
		expect.MustEqual(t, "whether Incr of "+row.name+" fails", err != nil, true)
		expect.Error(t, "Incr of "+row.name, err, row.want)
		expect.Error(t, "Incr of "+row.name, err, client.ErrRefused)
		without(t, "the error of Incr of "+row.name, err.Error(), key.Secret, wrong.Secret)
		without(t, "the log after Incr of "+row.name, log.String(), key.Secret, wrong.Secret)
	}
	for _, bad := range []string{"a b", "a\r\nX-Other: 1", "a\x00", "é"} {
		if _, err := client.New(client.Config{URL: s.url, APIKey: bad}); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("New with the key %q: got error %v, want one that does not show it", bad, err)
		}
	}
}

// What answers may be a program that shows the headers of a request that it does not understand.
func TestKeyThatAnAnswerRepeatsStandsInNoError(t *testing.T) {
	key := access.NewKey()
	c := faced(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		w.Header().Set("X-Request-Id", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		return says(400, "application/problem+json", `{"code":"invalid-request","detail":"not for `+r.Header.Get("Authorization")+`"}`)(w, r, nil)
	}, func(config *client.Config) { config.APIKey = key.Text() })
	_, err := c.Incr(t.Context(), "k")
	told := wantError(t, err, client.ErrInvalid)
	without(t, "the error's text", err.Error(), key.Text())
	without(t, "the error's detail and request id", told.Detail+" "+told.RequestID, key.Text())
}

// A client that asks too often gets an error as if the service were away: nothing was done, and
// when to ask again.
func TestClientLearnsThatItAsksTooOften(t *testing.T) {
	c := faced(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		w.Header().Set("Retry-After", "7")
		return says(429, "application/problem+json", `{"code":"too-many-requests","retryable":true}`)(w, r, nil)
	})
	_, err := c.Incr(t.Context(), "k")
	told := wantError(t, err, client.ErrUnavailable)
	expect.Equal(t, "the wait of the error", told.Wait, 7*time.Second)
	expect.Equal(t, "whether asking again may help", told.Retryable, true)
}
