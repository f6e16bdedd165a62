package scripts_test

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var apiKeys = []string{"{keys}"}

func TestAPIKeysAreAddedOnceListedAndRemoved(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.KeyList, apiKeys), "ok")
		from := b.now() / 1000
		for range 2 {
			want(t, b.run(scripts.KeyAdd, apiKeys, "blue", `{"a": 1}`), "added")
		}
		want(t, b.run(scripts.KeyAdd, apiKeys, "green", ""), "added")
		before := b.look(apiKeys...)
		want(t, b.run(scripts.KeyAdd, apiKeys, "blue", `{"a":2}`), "there")
		b.same(before)
		reply := b.run(scripts.KeyList, apiKeys)
		expect.MustEqual(t, "the length of key_list's reply about two keys", len(reply), 5)
		listed := map[string]string{reply[1]: reply[2], reply[3]: reply[4]}
		second, record, _ := strings.Cut(listed["blue"], " ")
		between(t, "added at", number(t, second), from, b.now()/1000)
		expect.Equal(t, "the record of the key blue", record, `{"a": 1}`)
		_, record, _ = strings.Cut(listed["green"], " ")
		expect.Equal(t, "the record of the key green", record, "")
		want(t, b.run(scripts.KeyRemove, apiKeys, "blue"), "removed")
		before = b.look(apiKeys...)
		want(t, b.run(scripts.KeyRemove, apiKeys, "blue"), "none")
		b.same(before)
		want(t, b.run(scripts.KeyList, apiKeys), "ok", "green", listed["green"])
	})
}
