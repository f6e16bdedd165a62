package redisstore

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestZeroConfigIsSound(t *testing.T) {
	for url, timeout := range map[string]time.Duration{"embedded:": embeddedTimeout, "redis://h": defaultTimeout} {
		expect.NoError(t, "Check", Config{URL: url}.Check())
		c := Config{URL: url}.WithDefaults()
		if c.Prefix != "coatcheck:" || c.AckTimeout != 500*time.Millisecond || c.Timeout != timeout || c.Logger != slog.Default() {
			t.Errorf("defaults with URL %q: got %+v, want prefix coatcheck:, ack timeout 500ms, timeout %v and a logger", url, c, timeout)
		}
	}
}

func TestAckTimeoutByDefaultFitsAShorterTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond:  5 * time.Millisecond,
		300 * time.Millisecond: 150 * time.Millisecond,
		time.Second:            500 * time.Millisecond,
		time.Minute:            500 * time.Millisecond,
	} {
		c := Config{URL: "redis://h", Timeout: timeout}
		if err := c.Check(); err != nil {
			t.Errorf("timeout %v: %v", timeout, err)
		}
		expect.Equal(t, fmt.Sprintf("the ack timeout where the timeout is %v", timeout), c.WithDefaults().AckTimeout, want)
	}
}

func TestConfigIsTakenOrRefused(t *testing.T) {
	long := strings.Repeat("p", 100)
	for _, row := range []struct {
		name   string
		config Config
		says   []string // nil = it is sound
	}{
		{"a server", Config{URL: "redis://h"}, nil},
		{"replicas", Config{URL: "redis://h", Ack: 100}, nil},
		{"all replicas", Config{URL: "redis://h", Ack: AckAll}, nil},
		{"no restart", Config{URL: "redis://h", Restarts: RestartsWait}, nil},
		{"the shortest times", Config{URL: "redis://h", Timeout: 10 * time.Millisecond, AckTimeout: time.Millisecond}, nil},
		{"the longest times", Config{URL: "redis://h", Timeout: time.Minute, AckTimeout: time.Minute - 1}, nil},
		{"a prefix", Config{URL: "redis://h", Prefix: "team-a.B_7:~@"}, nil},
		{"a long prefix", Config{URL: "redis://h", Prefix: long}, nil},
		{"trusted restarts", Config{URL: "redis://h", Restarts: RestartsTrust}, nil},
		{"embedded with a cap", Config{URL: "embedded:", MaxBytes: 5000}, nil},

		{"no URL", Config{}, []string{"it is empty: give the Redis"}},
		{"no URL, but other settings", Config{Prefix: "{", MaxBytes: 1}, []string{"it is empty: give the Redis", "prefix"}},
		{"a wrong URL", Config{URL: "redis://"}, []string{"host is empty"}},
		{"a brace in the prefix", Config{URL: "redis://h", Prefix: "a{b"}, []string{"prefix"}},
		{"a closing brace in the prefix", Config{URL: "redis://h", Prefix: "}"}, []string{"prefix"}},
		{"a space in the prefix", Config{URL: "redis://h", Prefix: "a b"}, []string{"prefix"}},
		{"a newline in the prefix", Config{URL: "redis://h", Prefix: "a\n"}, []string{"prefix"}},
		{"a prefix that is no ASCII", Config{URL: "redis://h", Prefix: "ä"}, []string{"prefix"}},
		{"a prefix too long", Config{URL: "redis://h", Prefix: long + "p"}, []string{"prefix"}},
		{"ack below 0", Config{URL: "redis://h", Ack: -2}, []string{"ack -2: 0 to 100 replicas, or all"}},
		{"ack too large", Config{URL: "redis://h", Ack: 101}, []string{"ack 101"}},
		{"timeout below 0", Config{URL: "redis://h", Timeout: -1}, []string{"timeout -1ns", "ack timeout"}},
		{"timeout too short", Config{URL: "redis://h", Timeout: 9 * time.Millisecond}, []string{"timeout 9ms"}},
		{"timeout too long", Config{URL: "redis://h", Timeout: time.Minute + 1}, []string{"timeout 1m"}},
		{"ack timeout below a millisecond", Config{URL: "redis://h", AckTimeout: time.Millisecond - 1}, []string{"ack timeout"}},
		{"ack timeout as long as the timeout", Config{URL: "redis://h", AckTimeout: time.Second}, []string{"ack timeout"}},
		{"ack on the embedded store", Config{URL: "embedded:", Ack: 1}, []string{"embedded store has no replicas"}},
		{"ack of all on the embedded store", Config{URL: "embedded:", Ack: AckAll}, []string{"embedded store has no replicas"}},
		{"restarts of another kind", Config{URL: "redis://h", Restarts: "hope"}, []string{`restarts "hope": auto, wait or trust`}},
		{"trusted restarts of the embedded store", Config{URL: "embedded:", Restarts: RestartsTrust}, []string{"ends with its process"}},
		{"all at once", Config{URL: "redis+cluster://h/main", Prefix: "{", Ack: -2, Timeout: time.Hour, AckTimeout: 2 * time.Hour},
			[]string{"cluster has neither", "prefix", "ack -2", "timeout 1h0m0s", "ack timeout 2h0m0s"}},
		{"all at once, embedded", Config{URL: "embedded:", Ack: 101, Prefix: "{"}, []string{"embedded store has no replicas", "ack 101: 0 to 100", "prefix"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.config.Check()
			if row.says == nil {
				expect.Equal(t, "Check", err, nil)
				return
			}
			_, opened := OpenConfig(t.Context(), row.config)
			if err == nil || opened == nil || opened.Error() != err.Error() {
				t.Fatalf("Check says %v, OpenConfig %v", err, opened)
			}
			for _, says := range row.says {
				expect.Contains(t, "the error", err.Error(), says)
			}
			if lines := strings.Count(err.Error(), "\n") + 1; lines != len(row.says) {
				t.Errorf("got %d faults, want %d: %v", lines, len(row.says), err)
			}
		})
	}
}
