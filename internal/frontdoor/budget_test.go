package frontdoor_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// keeping keeps each body in memory until it has come whole, and is told when that is too much.
func keeping(w http.ResponseWriter, r *http.Request) {
	_, err := io.ReadAll(r.Body)
	switch {
	case errors.Is(err, frontdoor.ErrOverloaded):
		w.WriteHeader(http.StatusServiceUnavailable)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	}
}

func post(size, sent int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("a", sent))
}

func (h *house) holds(n int64) {
	h.t.Helper()
	expect.Eventually(h.t, fmt.Sprintf("%d bytes are in flight", n), func() bool { return h.door.BytesInFlight() == n })
}

func TestBodiesInFlightAreBoundedAndGiveTheirMemoryBack(t *testing.T) {
	h := openHandler(t, frontdoor.Config{MaxBytes: 1 << 20}, http.HandlerFunc(keeping))
	holder := h.visit()
	holder.say(post(500_000, 450_000))
	h.holds(2 * 450_000)
	other := h.visit()
	other.say(post(200_000, 200_000))
	expect.Equal(t, "a body that does not fit", other.hears(), 503)
	small := h.visit()
	small.say(post(1000, 1000))
	expect.Equal(t, "a body that does", small.hears(), 200)
	expect.Equal(t, "the body that was silent while others had no memory", holder.hears(), 400)
	holder.ends("its client")
	h.holds(0)
	small.say(post(500_000, 500_000))
	expect.Equal(t, "a large body after it", small.hears(), 200)
}

// A caller that has its share is refused, and hurries no other. Others have room.
func TestOneCallerHasAShareOfTheMemory(t *testing.T) {
	h := openHandler(t, frontdoor.Config{MaxBytes: 1 << 20}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := frontdoor.Own(r.Context(), r.URL.Path); err != nil {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		keeping(w, r)
	}))
	of := func(who string, size, sent int) string {
		return strings.Replace(post(size, sent), "POST /", "POST /"+who, 1)
	}
	holder := h.visit()
	holder.say(of("a", 250_000, 249_000))
	h.holds(2 * 249_000)
	other := h.visit()
	other.say(of("a", 50_000, 50_000))
	expect.Equal(t, "a body beyond the caller's share", other.hears(), 503)
	another := h.visit()
	another.say(of("b", 100_000, 100_000))
	expect.Equal(t, "another caller's body", another.hears(), 200)
	another.say(of("b", 200_000, 200_000))
	expect.Equal(t, "one beyond that caller's share", another.hears(), 503)
	holder.say(strings.Repeat("a", 1000))
	expect.Equal(t, "the body that was there before", holder.hears(), 200)
	h.holds(0)
	holder.say(of("b", 250_000, 250_000))
	expect.Equal(t, "a large body of the other on a connection that was the first one's", holder.hears(), 200)
}

func TestHeadersInFlightAreBounded(t *testing.T) {
	h := openHandler(t, frontdoor.Config{MaxBytes: 100_000}, http.HandlerFunc(keeping))
	const size = 40_000
	holder := h.visit()
	holder.say("GET / HTTP/1.1\r\nX: " + strings.Repeat("a", size))
	expect.Eventually(t, "the header is in flight", func() bool { return h.door.BytesInFlight() > size })
	other := h.visit()
	other.say("GET / HTTP/1.1\r\nX: " + strings.Repeat("a", size))
	other.ends("a client for whose header there is no memory")
	small := h.visit()
	small.isAnswered()
	holder.say("\r\nHost: x\r\n\r\n")
	expect.Equal(t, "the header that was there before", holder.hears(), 200)
	h.holds(0)
}

// A client that does not take its answer while there is no memory for it loses it.
func TestAnswersThatAreNotTakenAreBounded(t *testing.T) {
	answer := bytes.Repeat([]byte("a"), 1<<20)
	h := openHandler(t, frontdoor.Config{MaxBytes: 1 << 19}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 12 { // more than the buffers of a connection take
			if _, err := w.Write(answer); err != nil {
				return
			}
		}
	}))
	h.visit().ask("/")
	expect.Eventually(t, "its client is cut off", func() bool { return h.door.Inside() == 0 && h.door.BytesInFlight() == 0 })
}

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	h := openHandler(t, frontdoor.Config{MaxPerAddress: 2}, http.HandlerFunc(keeping))
	first, second := h.visit(), h.visit()
	first.isAnswered()
	second.isAnswered()
	h.visit().ends("a third connection of an address")
	first.isAnswered()
	_ = second.Close()
	expect.Eventually(t, "one has gone", func() bool { return h.door.Inside() == 1 })
	h.visit().isAnswered()
}
