package server_test

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestSessionSaysWhoIsAskingAndNeverRefuses(t *testing.T) {
	book, keys, _ := accessOf(t, access.Record{Role: access.Use, Names: access.Names{"orders*"}})
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	s := serve(t, server.Config{Store: store, Access: book, Console: server.ConsoleConfig{Mode: server.ConsoleRead, Durability: "lost at once"}})
	const path = "/console/api/session"
	if got := must[wire.Session](t, s, 200, "GET", path, ""); got.Role != "none" || got.Refused != "" || got.Store != "" || got.Durability != "" || !got.Access || !got.Readonly {
		t.Errorf("%+v", got)
	}
	if got := must[wire.Session](t, s, 200, "GET", path, "", "X-API-Key: cck_x_y"); got.Role != "none" || got.Refused == "" {
		t.Errorf("%+v", got)
	}
	if got := must[wire.Session](t, s, 200, "GET", path, "", keys[0]); got.Role != "use" || got.Principal != "p" || !slices.Equal(got.Names, []string{"orders*"}) || got.Store != "embedded" || got.Durability != "lost at once" {
		t.Errorf("%+v", got)
	}
	open := serve(t, server.Config{Store: store})
	if got := must[wire.Session](t, open, 200, "GET", path, ""); got.Role != "admin" || got.Access || got.Readonly || got.Names == nil {
		t.Errorf("%+v", got)
	}
	off := serve(t, server.Config{Store: store, Console: server.ConsoleConfig{Mode: server.ConsoleOff}})
	for _, gone := range []string{path, "/console", "/console/", "/console/main.js"} {
		if a := off.do(t, "GET", gone, ""); a.status != 404 {
			t.Errorf("%s: %d", gone, a.status)
		}
	}
}
