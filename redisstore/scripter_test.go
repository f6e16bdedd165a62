package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// libraries are what a library brings: one that takes a key with a value, and answers nil if it is
// taken.
var library = redis.NewScript("-- a comment\nlocal key = KEYS[1]\nif redis.call('SETNX', key, ARGV[1]) == 0 then return false end\nreturn redis.status_reply('OK')")

// follow tells what it finds, which the library has written.
var follow = script("follow", "local mine = redis.call('GET', KEYS[1]) == ARGV[1]\nreturn {mine and 'mine' or 'theirs', tostring(#KEYS), tostring(#ARGV), redis.call('INCR', KEYS[2]) .. ''}", false)

func takes(t *testing.T, store *redisstore.Store, scripter redis.Scripter, name, value string) (*pipeline.Chained, error) {
	t.Helper()
	keys := []string{onstore.Key(store, "test", name), onstore.Key(store, "test", name, "count")}
	behind := &pipeline.Chained{Script: follow, Keys: keys, Args: []any{value}, Done: "mine"}
	return behind, library.Run(behind.With(t.Context()), scripter, keys[:1], value).Err()
}

// A library's script and ours are one: ours sees what the library has done, and says what the
// library hears.
func TestLibrarysScriptRunsWithOursBehindIt(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		scripter := pipeline.Of(store).Scripter()
		var all sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			all.Go(func() {
				first, err := takes(t, store, scripter, name, "me")
				expect.Error(t, "first take of "+name, err, nil)
				expect.Equal(t, "first take of "+name, first.Reply, scripts.Reply{"mine", "2", "2", "1"})
				second, err := takes(t, store, scripter, name, "you")
				expect.Error(t, "take of what another has", err, redis.Nil)
				expect.Equal(t, "take of what another has", second.Reply[0], "theirs")
				expect.Equal(t, "takes of "+name, second.Reply[3], "2")
			})
		}
		all.Wait()
		flush(t, store) // servers forget, the scripter does not
		again, err := takes(t, store, scripter, "a", "me")
		expect.Error(t, "take after SCRIPT FLUSH", err, nil)
		expect.Equal(t, "takes of a", again.Reply[3], "3")
	})
}

func TestLibrarysScriptKeepsTheClassesOfErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), func(c *redisstore.Config) { c.Timeout = brief })
	scripter := pipeline.Of(store).Scripter()
	_, err := takes(t, store.WithAck(1), pipeline.Of(store.WithAck(1)).Scripter(), "a", "me")
	unknown(t, err)
	if err := library.Run(t.Context(), scripter, []string{"a"}, "me").Err(); !errors.Is(err, redisstore.ErrRefused) {
		t.Errorf("with nothing after it: %v", err)
	}
	behind := &pipeline.Chained{Script: follow, Keys: []string{"x"}, Done: "mine"}
	if err := library.Run(behind.With(t.Context()), scripter, []string{"a"}, "me").Err(); !errors.Is(err, redisstore.ErrRefused) || behind.Reply != nil {
		t.Errorf("with other keys: %v", err)
	}
	server.Kill()
	_, err = takes(t, store, scripter, "a", "me")
	refused(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := library.Run(behind.With(ended), scripter, []string{"x"}, "me").Err(); err == nil {
		t.Error("no error when the context had ended")
	}
}

func TestScripterKnowsTheTextsThatItWasTold(t *testing.T) {
	t.Parallel()
	scripter := pipeline.Of(open(t, "embedded:", nil)).Scripter()
	known := scripter.ScriptExists(t.Context(), library.Hash()).Val()
	expect.Equal(t, "SCRIPT EXISTS before its text came", known, []bool{false})
	if err := scripter.EvalShaRO(t.Context(), library.Hash(), nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("EVALSHA_RO before its text came: got error %v, want NOSCRIPT", err)
	}
	expect.Equal(t, "SCRIPT LOAD", scripter.ScriptLoad(t.Context(), "return 1").Val(), redis.NewScript("return 1").Hash())
	known = scripter.ScriptExists(t.Context(), redis.NewScript("return 1").Hash()).Val()
	expect.Equal(t, "SCRIPT EXISTS after SCRIPT LOAD", known, []bool{true})
	expect.Error(t, "EVAL_RO of a text that is no library's", scripter.EvalRO(t.Context(), "return 2", nil).Err(), redisstore.ErrRefused)
}
