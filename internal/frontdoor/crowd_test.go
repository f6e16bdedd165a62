package frontdoor_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// crowd opens a house of 20 connections, and keeps five on which somebody was served who may ask.
// Without that right every answer is a refusal. A body is read, and then refused or not.
func crowd(t *testing.T) (h *house, kept []*visitor) {
	t.Helper()
	config := frontdoor.Config{MaxConnections: 20, HeaderTimeout: time.Hour}
	h = openHandler(t, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(http.StatusTooManyRequests)
			return
		case "/":
			_ = frontdoor.Own(r.Context(), "ann") // there is room for her
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	for range 5 {
		v := h.visit()
		v.isAnswered()
		kept = append(kept, v)
	}
	expect.Eventually(t, "all are quiet", func() bool { return h.door.Quiet() == len(kept) })
	return h, kept
}

// Clients with kept connections find them open, whatever strangers and clients with half requests
// do: one that is closed under a POST leaves its outcome unknown.
func TestKeptConnectionsOutlastACrowd(t *testing.T) {
	t.Parallel()
	const half = "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nhalf"
	for name, says := range map[string]string{
		"that says nothing":                  "",
		"with half a header":                 "GET / HTTP/1.1\r\nHos",
		"that may not ask":                   "GET /open HTTP/1.1\r\nHost: x\r\n\r\n",
		"with half a body":                   fmt.Sprintf(half, "/"),
		"with half a body, which is refused": fmt.Sprintf(half, "/refused"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, kept := crowd(t)
			for range 10 {
				for range 30 {
					h.visit().say(says)
				}
				for at, v := range kept {
					v.ask("/")
					expect.MustEqual(t, fmt.Sprintf("status that kept connection %d hears", at), v.hears(), 200)
				}
			}
		})
	}
}

// A stranger is let in while others send their last second of what was refused.
func TestRefusedBodiesKeepNoPlace(t *testing.T) {
	config := frontdoor.Config{MaxConnections: 1, HeaderTimeout: time.Hour}
	h := openHandler(t, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	first := h.visit()
	first.say("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\nhalf")
	expect.Equal(t, "status of the refused", first.hears(), http.StatusTooManyRequests)
	expect.Eventually(t, "it reads what still comes, as one that makes room", func() bool { return h.door.Quiet() == 1 })
	began := time.Now()
	h.visit().isAnswered()
	t.Logf("the next one was answered after %v", time.Since(began))
	first.ends("the refused one")
}
