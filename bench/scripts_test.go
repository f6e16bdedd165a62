package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// recorded is a story of a few calls, on a server of its own.
func recorded(t *testing.T, open func(context.Context, *stage) (*story, error)) *story {
	t.Helper()
	server, err := startRedis(t.Context())
	expect.Error(t, "starting Redis", err, nil)
	t.Cleanup(server.end)
	told, err := tell(t.Context(), &stage{redis: server, recorder: newRecorder(), n: 60}, open)
	expect.Error(t, "recording", err, nil)
	return told
}

// The calls that the library made once are made again in each round, with the same replies.
func TestRecordedCallsCanBeRepeated(t *testing.T) {
	for _, open := range stories {
		told := recorded(t, open)
		end := told.redis.listen(t.Context(), append(told.channels, bareChannel))
		costs := scriptCosts{}
		for round := range 3 {
			expect.Error(t, "measuring", told.measure(t.Context(), costs, round), nil)
		}
		end()
		for _, act := range told.acts {
			if act.what == "" {
				continue
			}
			own, least := costs[act.what][coatcheck], costs[act.what][bareCommands]
			if len(own) != 3 || len(least) != 3 || own[2].usec <= 0 || own[2].calls < least[2].calls || least[2].calls < 1 {
				t.Errorf("%s: got %v beside %v, want three rounds, and no fewer commands", act.what, own, least)
			}
		}
	}
}

func TestAnotherReplyEndsTheMeasurement(t *testing.T) {
	told := recorded(t, ownKeys)
	told.acts[0].word = "busy"
	err := told.measure(t.Context(), scriptCosts{}, 0)
	if err == nil || !strings.Contains(err.Error(), `token_claim: a script replied "granted", want "busy"`) {
		t.Errorf("got %v, want an error with both words", err)
	}
}

// A lock whose next waiter has no process stays free, with the reply of a release that hands it
// over.
func TestALockThatWasNotHandedOverEndsTheMeasurement(t *testing.T) {
	told := recorded(t, handOvers)
	err := told.play(t.Context(), scriptCosts{}, coatcheck)
	if err == nil || !strings.Contains(err.Error(), "0 of 50 locks have a new holder") {
		t.Errorf("got %v, want an error that says how many locks were handed over", err)
	}
}

func TestCommandsAreReadFromPieces(t *testing.T) {
	const whole = "*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n"
	for text, want := range map[string]struct {
		words string
		err   error
	}{
		whole:            {"GET a\r\nbc", nil},
		whole + "*1\r\n": {"GET a\r\nbc", nil},
		whole[:1]:        {"", io.ErrUnexpectedEOF},
		whole[:11]:       {"", io.ErrUnexpectedEOF},
		whole[:20]:       {"", io.ErrUnexpectedEOF},
	} {
		words, size, err := commandIn([]byte(text))
		if !errors.Is(err, want.err) || err == nil && (strings.Join(words, " ") != want.words || size != len(whole)) {
			t.Errorf("%q: got %q of %d bytes, %v; want %q of %d bytes, %v", text, words, size, err, want.words, len(whole), want.err)
		}
	}
	if _, _, err := commandIn([]byte("PING\r\n")); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a command in a line: got %v, want an error that says so", err)
	}
}
