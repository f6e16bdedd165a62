package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

const hostileTable = "testdata/hostile.json"

// hostile is the table of what a server that lies or stalls answers, for the clients of all
// languages: its head explains it.
type hostile struct {
	Secrets struct {
		Key   string `json:"key"`
		Lease string `json:"lease"`
		Token string `json:"token"`
	} `json:"secrets"`
	Rows []hostileRow `json:"rows"`
}

type hostileRow struct {
	Name  string `json:"name"`
	Call  string `json:"call"`
	Says  string `json:"says"`
	Again string `json:"again"`
	Stays bool   `json:"stays"`
	Gets  struct {
		Returns    int64    `json:"returns"`
		Kind       string   `json:"kind"`
		Code       string   `json:"code"`
		Status     int      `json:"status"`
		RetryAfter *float64 `json:"retry_after"`
	} `json:"gets"`
}

func readHostile(t testing.TB) (table hostile) {
	t.Helper()
	text, err := os.ReadFile(hostileTable)
	must(t, "reading the table", err)
	must(t, "reading the table", json.Unmarshal(text, &table))
	if len(table.Rows) < 60 {
		t.Fatalf("%d rows: does this test still read them?", len(table.Rows))
	}
	return table
}

// hostileServer answers by the rows of the table: the first segment of a path is the row's place.
type hostileServer struct {
	hostile

	url string

	mu    sync.Mutex
	asked map[int]int // requests by row
	open  map[net.Conn]bool
	conns sync.WaitGroup
}

func serveHostile(t testing.TB) *hostileServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, "Listen", err)
	s := &hostileServer{hostile: readHostile(t), url: "http://" + listener.Addr().String(), asked: map[int]int{}, open: map[net.Conn]bool{}}
	s.conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[conn] = true
			s.mu.Unlock()
			s.conns.Go(func() { s.answer(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		s.mu.Lock()
		for conn := range s.open {
			conn.Close()
		}
		s.mu.Unlock()
		s.conns.Wait()
	})
	return s
}

func (s *hostileServer) answer(conn net.Conn) {
	defer conn.Close()
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	body, _ := io.ReadAll(request.Body)
	place, _, _ := strings.Cut(request.URL.Path[1:], "/")
	n, err := strconv.Atoi(place)
	if err != nil || n >= len(s.Rows) {
		return
	}
	s.mu.Lock()
	s.asked[n]++
	s.mu.Unlock()
	row := s.Rows[n]
	_, err = io.WriteString(conn, filled(row.Says, request, body))
	for err == nil && row.Again != "" {
		time.Sleep(5 * time.Millisecond)
		_, err = io.WriteString(conn, row.Again)
	}
	if row.Stays {
		_, _ = conn.Read(make([]byte, 1)) // until the client has gone
	}
}

var many = regexp.MustCompile(`<(\d+) of (.)>`)

// filled is the text of a row with the secrets of the request.
func filled(says string, request *http.Request, body []byte) string {
	lease := request.Header.Get("Lease-Token")
	_, token, _ := strings.Cut(request.URL.Path, "/token/")
	token, _, _ = strings.Cut(token, "/")
	says = strings.NewReplacer("{key}", strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer "), "{lease}", lease, "{token}", token,
		"{broken lease}", lease[:len(lease)/2]+`\u001b`+lease[len(lease)/2:], "{torn lease}", lease[:len(lease)/2]+"\x1b"+lease[len(lease)/2:]).Replace(says)
	return many.ReplaceAllStringFunc(says, func(text string) string {
		parts := many.FindStringSubmatch(text)
		n, _ := strconv.Atoi(parts[1]) // the form says it
		return strings.Repeat(parts[2], n)
	})
}

// wait is how long a call may take: as long as a busy machine needs, or little where nothing comes.
func (row hostileRow) wait() time.Duration {
	if row.Stays || row.Again != "" {
		return 300 * time.Millisecond
	}
	return patience
}

func (row hostileRow) call(ctx context.Context, c *client.Client, by hostile) (n int64, err error) {
	switch row.Call {
	case "incr":
		return c.Incr(ctx, "orders")
	case "counter":
		return c.Counter(ctx, "orders")
	case "extend":
		_, err = c.Extend(ctx, by.Secrets.Token, by.Secrets.Lease, time.Second)
	case "claim":
		_, err = c.Claim(ctx, by.Secrets.Token, client.ClaimOptions{Fingerprint: "f", LeaseToken: by.Secrets.Lease})
	case "take_limit":
		_, err = c.TakeLimit(ctx, "mail", client.LimitRate{N: 2, Per: time.Minute}, 1)
	default:
		err = errors.New("the table has a call that this test lacks: " + row.Call)
	}
	return 0, err
}

// Whatever a server answers, a call ends, and its error is what the table says.
func TestAnswersOfAHostileServer(t *testing.T) {
	s := serveHostile(t)
	for n, row := range s.Rows {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, s.url+"/"+strconv.Itoa(n), func(config *client.Config) { config.APIKey, config.Timeout = s.Secrets.Key, row.wait() })
			got, err := row.call(t.Context(), c, s.hostile)
			if row.Gets.Kind == "" {
				expect.Error(t, row.Call, err, nil)
				expect.Equal(t, row.Call, got, row.Gets.Returns)
			} else {
				row.check(t, err)
				s.keepsSecrets(t, err)
			}
			if s.mu.Lock(); row.Call != "claim" { // which asks again by itself
				expect.Equal(t, "requests", s.asked[n], 1)
			}
			s.mu.Unlock()
		})
	}
}

var hostileKinds = map[string]error{
	"UnknownOutcome": client.ErrUnknownOutcome, "Unavailable": client.ErrUnavailable, "Error": client.ErrRefused, "Lost": client.ErrLost,
}

func (row hostileRow) check(t *testing.T, err error) {
	t.Helper()
	failure := wantError(t, err, hostileKinds[row.Gets.Kind])
	if row.Gets.Code != "" {
		expect.Equal(t, "the code", failure.Code, row.Gets.Code)
	}
	if row.Gets.Status != 0 {
		expect.Equal(t, "the status", failure.Status, row.Gets.Status)
	}
	wait := 0.0 // not known
	if row.Gets.RetryAfter != nil {
		wait = *row.Gets.RetryAfter
	}
	expect.Equal(t, "the wait", failure.Wait.Seconds(), wait)
}

// keepsSecrets checks what people print of an error, and what logs have of it.
func (h hostile) keepsSecrets(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text) > 4000 {
		t.Errorf("the error's text is not printed, or too long: %q", text)
	}
	var log logtest.Text
	log.Logger().Error("it failed", "error", err)
	slog.New(slog.NewJSONHandler(&log, nil)).Error("it failed", "error", err)
	written := new(strings.Builder)
	must(t, "writing the error as JSON", json.NewEncoder(written).Encode(err))
	without(t, "what is printed of the error", fmt.Sprintf("%v %+v %#v %s %s", err, err, err, written, &log),
		h.Secrets.Key, h.Secrets.Lease, h.Secrets.Token, "\x1b", `\u001b`, `\x1b`)
}
