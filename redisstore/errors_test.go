package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// answered is an error that Redis answered, as go-redis gives it.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

func TestSentinelsBelongToOneClass(t *testing.T) {
	classes := []error{ErrRefused, ErrLost, ErrUnknownOutcome}
	for _, row := range []struct{ err, class error }{
		{ErrUnavailable, ErrRefused},
		{ErrWrongType, ErrRefused},
		{ErrNewer, ErrRefused},
		{fault.Refusal("no"), ErrRefused},
		{fault.Loss("gone"), ErrLost},
		{fmt.Errorf("wrapped: %w", fault.Loss("gone")), ErrLost},
		{&Error{Op: "x", Class: ErrUnavailable, Cause: io.EOF}, ErrRefused},
		{&Error{Op: "x", Class: ErrUnknownOutcome, Cause: &ShortfallError{Want: 2, Got: 1}}, ErrUnknownOutcome},
	} {
		for _, class := range classes {
			expect.Equal(t, fmt.Sprintf("%v is %v", row.err, class), errors.Is(row.err, class), errors.Is(class, row.class))
		}
	}
	if errors.Is(fault.Refusal("a"), fault.Refusal("a")) {
		t.Error("two refusals of the same words are the same")
	}
}

func TestErrorGivesOperationClassAndCause(t *testing.T) {
	err := error(&Error{Op: "token_claim", Class: ErrUnavailable, Cause: fmt.Errorf("dial: %w", context.DeadlineExceeded)})
	expect.Equal(t, "the text of an error", err.Error(), "token_claim: store unavailable: dial: context deadline exceeded")
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("class or cause cannot be found in %v", err)
	}
}

// What Redis answers when it did not run a script: as the answer to EVALSHA itself, and as the
// error of a command that the script called, which Redis 7 hands on and older ones quote in a text
// of their own.
func TestRefusalsOfRedisAreRefusals(t *testing.T) {
	for name, text := range map[string]string{
		"LOADING":         "LOADING Redis is loading the dataset in memory",
		"READONLY":        "READONLY You can't write against a read only replica.",
		"NOREPLICAS":      "NOREPLICAS Not enough good replicas to write.",
		"MISCONF":         "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"OOM":             "OOM command not allowed when used memory > 'maxmemory'.",
		"CLUSTERDOWN":     "CLUSTERDOWN The cluster is down",
		"CLUSTERDOWN 2":   "CLUSTERDOWN Hash slot not served",
		"MASTERDOWN":      "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"TRYAGAIN":        "TRYAGAIN Multiple keys request during rehashing of slot",
		"MOVED":           "MOVED 3999 127.0.0.1:6381",
		"ASK":             "ASK 3999 127.0.0.1:6381",
		"CROSSSLOT":       "CROSSSLOT Keys in request don't hash to the same slot",
		"NOAUTH":          "NOAUTH Authentication required.",
		"NOAUTH, long":    "ERR Protocol error: unauthenticated multibulk length",
		"NOAUTH, longer":  "ERR Protocol error: unauthenticated bulk length",
		"WRONGPASS":       "WRONGPASS invalid username-password pair or user is disabled.",
		"NOPERM":          "NOPERM this user has no permissions to run the 'evalsha' command",
		"BUSY":            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"NOSCRIPT":        "NOSCRIPT No matching script. Please use EVAL.",
		"too many":        "ERR max number of clients reached",
		"in a script, 7":  "OOM command not allowed when used memory > 'maxmemory'. script: 0a1b, on @user_script:1.",
		"in a script, 7b": "READONLY You can't write against a read only replica. script: 0a1b, on @user_script:12.",
		"in a script, 7c": "NOREPLICAS Not enough good replicas to write. script: 0a1b, on @user_script:12.",
		"in a script, 6.2": "ERR Error running script (call to f_abc): @user_script:1: @user_script: 1: " +
			"-OOM command not allowed when used memory > 'maxmemory'.",
		"in a script, 6.2b": "ERR Error running script (call to f_abc): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.",
		"in a script, 6.2c": "ERR Error running script (call to f_abc): @user_script:9: @user_script: 9: -NOREPLICAS Not enough good replicas to write.",
		"in a script, 6.2d": "ERR Error running script (call to f_abc): @user_script:9: @user_script: 9: " +
			"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"in a script, 6.2, LOADING": "ERR Error running script (call to f_abc): @user_script:9: @user_script: 9: -LOADING Redis is loading the dataset in memory",
		"in a script, Valkey":       "ERR Unknown command called from script script: c2f8, on @user_script:1.",
		"in a script, Valkey2":      "ERR ACL failure in script: User default has no permissions to run the 'incr' command script: c2f8, on @user_script:1.",
		"embedded, full":            "OOM embedded store holds its cap of 5 keys; use a real Redis (--redis) or wait for keys to expire",
	} {
		t.Run(name, func(t *testing.T) {
			err := classify(t.Context(), "op", answered(text), true, false)
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("got %v, want %v", err, ErrUnavailable)
			}
		})
	}
}

func TestOtherAnswersOfRedisLeaveTheOutcomeUnknown(t *testing.T) {
	for name, text := range map[string]string{
		"a script's mistake":         "ERR user_script:7: attempt to compare nil with number script: 0a1b, on @user_script:7.",
		"a script's mistake, 6.2":    "ERR Error running script (call to f_abc): @user_script:7: user_script:7: attempt to index a nil value",
		"killed":                     "ERR Error running script (call to f_abc): @user_script:1: Script killed by user with SCRIPT KILL...",
		"a TTL that cannot be kept":  "ERR embedded store: a TTL under 100 ms cannot be kept, got 5 ms",
		"a code inside a word":       "ERR the value 'BOOM' is odd",
		"a code inside a sentence":   "ERR got OOM where a number belongs",
		"a code that is longer":      "ERR user_script:7: -OOMPH",
		"a code that begins as MOVE": "MOVE 1",
		"nil":                        "redis: nil",
		"empty":                      "",
	} {
		t.Run(name, func(t *testing.T) {
			err := classify(t.Context(), "op", answered(text), true, false)
			if !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrRefused) {
				t.Errorf("got %v, want %v", err, ErrUnknownOutcome)
			}
			if err := classify(t.Context(), "op", answered(text), true, true); !errors.Is(err, ErrUnavailable) {
				t.Errorf("of a script that only reads: got %v, want %v", err, ErrUnavailable)
			}
		})
	}
}

func TestFailureIsClassedByWhetherTheCommandLeft(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, row := range []struct {
		name           string
		ctx            context.Context
		err            error
		sent, harmless bool
		class          error
		causes         []error
	}{
		{"cut off before sending", t.Context(), io.EOF, false, false, ErrUnavailable, []error{io.EOF}},
		{"cut off after sending", t.Context(), io.EOF, true, false, ErrUnknownOutcome, []error{io.EOF}},
		{"cut off after sending, reads", t.Context(), io.EOF, true, true, ErrUnavailable, []error{io.EOF}},
		{"context ended before sending", over, io.EOF, false, false, ErrUnavailable, []error{io.EOF, context.Canceled}},
		{"context ended after sending", over, io.EOF, true, false, ErrUnknownOutcome, []error{io.EOF, context.Canceled}},
		{"context's own error", over, context.Canceled, true, false, ErrUnknownOutcome, []error{context.Canceled}},
		{"connection timed out before its context", t.Context(), os.ErrDeadlineExceeded, true, false, ErrUnknownOutcome, []error{context.DeadlineExceeded}},
		{"pool timed out before the context", t.Context(), redis.ErrPoolTimeout, false, false, ErrUnavailable, []error{context.DeadlineExceeded}},
		{"too few replicas", t.Context(), &ShortfallError{Want: 2, Got: 0}, true, false, ErrUnknownOutcome, nil},
		{"wrong type", t.Context(), answered("WRONGTYPE Operation against a key holding the wrong kind of value"), true, false, ErrWrongType, nil},
		{"wrong type, 6.2", t.Context(), answered("ERR Error running script (call to f_a): @user_script:1: WRONGTYPE Operation against"), true, false, ErrWrongType, nil},
		{"wrong type, reads", t.Context(), answered("WRONGTYPE Operation against"), true, true, ErrWrongType, nil},
		{"newer", t.Context(), answered("ERR NEWER pool 2 1 1.1.0 script: f_a, on @user_script:1."), true, false, ErrNewer, nil},
		{"newer, 6.2", t.Context(), answered("ERR Error running script (call to f_a): @user_script:1: NEWER pool 2 1 1.1.0"), true, false, ErrNewer, nil},
		{"newer words in another error", t.Context(), errors.New("NEWER pool 2 1 1.1.0"), true, false, ErrUnknownOutcome, nil},
		{"the words in another error", t.Context(), errors.New("WRONGTYPE OOM"), true, false, ErrUnknownOutcome, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := classify(row.ctx, "op", row.err, row.sent, row.harmless)
			for _, class := range []error{ErrUnavailable, ErrWrongType, ErrNewer, ErrUnknownOutcome} {
				expect.Equal(t, fmt.Sprintf("%v is %v", err, class), errors.Is(err, class), errors.Is(row.class, class))
			}
			for _, cause := range append(row.causes, row.err) {
				if !errors.Is(row.class, ErrNewer) && !errors.Is(err, cause) {
					t.Errorf("%v is not %v", err, cause)
				}
			}
			var full *Error
			if !errors.As(err, &full) || full.Op != "op" || strings.Count(err.Error(), "context canceled") > 1 {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestANewerRecordNamesTheVersionToInstall(t *testing.T) {
	for text, want := range map[string]struct {
		cause NewerError
		says  string
	}{
		"ERR NEWER pool 2 1 1.1.0 script: f_a": {NewerError{"pool", 2, 1, "1.1.0"},
			"a record in Redis (pool) is in format 2, and this version of coatcheck knows format 1: install 1.1.0 or newer"},
		"ERR NEWER lock ? 1 ?": {NewerError{"lock", 0, 1, ""},
			"a record in Redis (lock) is in an unknown format, and this version of coatcheck knows format 1: install a newer version"},
	} {
		err := classify(t.Context(), "op", answered(text), true, false)
		var newer *NewerError
		if !errors.As(err, &newer) || *newer != want.cause || newer.Error() != want.says {
			t.Errorf("%q: got %v, want %v", text, err, want)
		}
	}
}

// go-redis calls sentinels unreachable that know no master of the name in the URL.
func TestSentinelsThatKnowNoSuchMasterAreQuotedAsThat(t *testing.T) {
	cause := fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(redis.Nil, io.EOF))
	err := classify(t.Context(), "op", cause, false, false)
	if text := err.Error(); !strings.Contains(text, "no master of that name\nEOF") || strings.Contains(text, "redis: nil") {
		t.Errorf("it says %q", text)
	}
}

func TestShortfallSaysHowFarItGot(t *testing.T) {
	expect.Equal(t, "the text of a shortfall", (&ShortfallError{Want: 2, Got: 1}).Error(), "acknowledged by 1 of 2 replicas")
	expect.Equal(t, "the text with an address", (&ShortfallError{Want: 2, Got: 1, Missing: "10.0.0.3:6379"}).Error(),
		"acknowledged by 1 of 2 replicas, and not by 10.0.0.3:6379")
}
