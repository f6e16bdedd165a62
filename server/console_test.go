package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestSessionSaysWhoIsAskingAndNeverRefuses(t *testing.T) {
	t.Parallel()
	book, keys, _ := accessOf(t, access.Record{Role: access.Use, Names: access.Names{"orders*"}})
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	s := serve(t, server.Config{Store: store, Access: book, Console: server.ConsoleConfig{Mode: server.ConsoleRead, Durability: "lost at once"}})
	const path = "/console/api/session"
	session := func(s *service, header ...string) api.Session {
		got := must[api.Session](t, s, 200, "GET", path, "", header...)
		got.Hazards = nil
		return got
	}
	expect.Equal(t, "GET "+path, session(s), api.Session{Role: "none", Names: []string{}, Access: true, Readonly: true})
	wrong := session(s, "X-API-Key: cck_x_y")
	expect.Equal(t, "GET "+path+" with a wrong key: says why it is not taken", wrong.Refused != "", true)
	expect.Equal(t, "GET "+path+" with a wrong key: role", wrong.Role, "none")
	expect.Equal(t, "GET "+path+" with a key", session(s, keys[0]), api.Session{
		Role: "use", Principal: "p", Names: []string{"orders*"}, Access: true, Readonly: true, Store: "embedded", Durability: "lost at once",
	})
	open := session(serve(t, server.Config{Store: store}))
	expect.Contains(t, "GET "+path+" where access is not controlled: what can be lost", open.Durability, "in memory only")
	open.Durability = ""
	expect.Equal(t, "GET "+path+" where access is not controlled", open, api.Session{Role: "admin", Names: []string{}, Store: "embedded"})
	off := serve(t, server.Config{Store: store, Console: server.ConsoleConfig{Mode: server.ConsoleOff}})
	for _, gone := range []string{path, historyPath, "/console", "/console/", "/console/main.js"} {
		off.do(t, "GET", gone, "").wantStatus(t, 404)
	}
}

// Pages that are opened while Redis hangs wait for one look at its settings together, not for one
// each in turn.
func TestSessionsOfAHungStoreDoNotQueue(t *testing.T) {
	t.Parallel()
	redis, f := onRedisThatHangs(t)
	redis.Pause()
	began := time.Now()
	for _, a := range f.atOnce(t, slices.Repeat([]call{{method: "GET", path: "/console/api/session"}}, 20)) {
		a.wantStatus(t, 200)
	}
	redis.Resume()
	wantBetween(t, "twenty sessions of a store that is given a second for a call", time.Since(began), 0, 10*time.Second)
}
