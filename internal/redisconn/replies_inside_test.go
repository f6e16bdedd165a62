package redisconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// played is a connection on which a server answers in pieces of a size.
type played struct {
	net.Conn
	says io.Reader
	size int
}

func (p *played) Write(b []byte) (int, error) { return len(b), nil }
func (p *played) Read(into []byte) (int, error) {
	return p.says.Read(into[:min(p.size, len(into))])
}

// hear writes commands, and returns what the guarded connection passes of the replies.
func hear(t *testing.T, size int, replies string, writes ...string) (string, error) {
	t.Helper()
	dial := guarded(func(context.Context, string, string) (net.Conn, error) {
		return &played{says: strings.NewReader(replies), size: size}, nil
	}, nil, time.Second)
	c, err := dial(t.Context(), "tcp", "x")
	expect.NoError(t, "dial", err)
	for _, text := range writes {
		_, err = c.Write([]byte(text))
		expect.NoError(t, "Write", err)
	}
	var heard bytes.Buffer
	_, err = io.Copy(&heard, c)
	return heard.String(), err
}

func words(all ...string) string {
	text := "*" + strconv.Itoa(len(all)) + "\r\n"
	for _, word := range all {
		text += "$" + strconv.Itoa(len(word)) + "\r\n" + word + "\r\n"
	}
	return text
}

func TestPasswordIsInNoErrorOfItsConnection(t *testing.T) {
	const pass, stars = "s3cretpw", "********"
	long := strings.Repeat("token", 300)
	hello, auth := words("hello", "2", "auth", "svc", pass, "setname", "x"), words("AUTH", "svc", pass)
	for name, row := range map[string]struct{ sent, replies, want string }{
		"in Redis's words":          {auth, "-ERR unknown command 'auth', with args beginning with: 'svc' '" + pass + "' \r\n", "-ERR unknown command 'auth', with args beginning with: 'svc' '" + stars + "' \r\n"},
		"in other words":            {hello, "-ERR evil *3|$4|auth|" + pass + pass + "\r\n", "-ERR evil *3|$4|auth|" + stars + stars + "\r\n"},
		"of the user default":       {words("auth", pass), "-ERR " + pass + "\r\n", "-ERR " + stars + "\r\n"},
		"of a user of that name":    {words("hello", "2", "auth", "auth", pass), "-ERR " + pass + "\r\n", "-ERR " + stars + "\r\n"},
		"as the code":               {auth, "-" + pass + "\r\n", "-" + stars + "\r\n"},
		"cut":                       {words("auth", long), "-ERR 'auth' '" + long[:80] + "'\r\n", "-ERR 'auth' '" + strings.Repeat("*", 80) + "'\r\n"},
		"later, in an array":        {auth, "+OK\r\n*2\r\n:1\r\n-ERR a " + pass + "\r\n", "+OK\r\n*2\r\n:1\r\n-ERR a " + stars + "\r\n"},
		"data stay":                 {auth, "+OK\r\n$12\r\n-" + pass + "\r\n\n\r\n", "+OK\r\n$12\r\n-" + pass + "\r\n\n\r\n"},
		"codes stay":                {words("auth", "NOSCRIPT"), "-NOSCRIPT No matching NOSCRIPT\r\n", "-NOSCRIPT No matching ********\r\n"},
		"redirections stay":         {words("auth", "6379"), "-MOVED 1 h:6379\r\n", "-MOVED 1 h:6379\r\n"},
		"no password":               {words("hello", "2"), "-ERR hello\r\n", "-ERR hello\r\n"},
		"a key is no password":      {words("get", "auth", pass), "-ERR " + pass + "\r\n", "-ERR " + pass + "\r\n"},
		"the next one counts alone": {hello + words("select", "0"), "-ERR " + pass + "\r\n", "-ERR " + stars + "\r\n"},
	} {
		for _, size := range []int{1, 7, 1 << 16} {
			got, err := hear(t, size, row.replies, row.sent)
			expect.Error(t, name, err, nil)
			expect.Equal(t, name+", in pieces of "+strconv.Itoa(size), got, row.want)
			got, _ = hear(t, size, row.replies, row.sent[:16], row.sent[16:])
			expect.Equal(t, name+", written in two pieces", got, row.want)
		}
	}
}

func TestRepliesAreBounded(t *testing.T) {
	for name, row := range map[string]struct {
		replies string
		passes  bool
	}{
		"a status as long as may be":       {"+" + strings.Repeat("a", maxLine-2) + "\r\n", true},
		"a status without end":             {"+" + strings.Repeat("a", 1<<20), false},
		"a status that is too long":        {"+" + strings.Repeat("a", 1<<17) + "\r\n", false},
		"an array of too many":             {"*1000001\r\n", false},
		"arrays of too many":               {"*2\r\n*999999\r\n", false},
		"many replies":                     {strings.Repeat("*2\r\n$-1\r\n$1\r\nx\r\n*600000\r\n"+strings.Repeat(":1\r\n", 600_000), 3), true},
		"arrays as deep as may be":         {strings.Repeat("*1\r\n", maxDepth) + ":1\r\n*1\r\n*0\r\n", true},
		"arrays without end":               {strings.Repeat("*1000\r\n", 17), false},
		"a string longer than Redis keeps": {"$536870913\r\n", false},
		"strings and nothing":              {"*-1\r\n$-1\r\n$0\r\n\r\n:7\r\n", true},
		"a map of too many":                {"%9223372036854775807\r\n", false},
		"a message, a map and more":        {">2\r\n+a\r\n%1\r\n+k\r\n~1\r\n=5\r\ntxt:a\r\n:1\r\n", true},
		"an attribute":                     {"|1\r\n", false},
		"no Redis, as go-redis says":       {"HTTP/1.1 400 Bad Request\r\n\r\n", true},
	} {
		got, err := hear(t, 4096, row.replies)
		if row.passes != (err == nil) || row.passes && got != row.replies {
			t.Errorf("%s: got %d bytes of %d and error %v, want all that came: %t", name, len(got), len(row.replies), err, row.passes)
		}
		if err != nil && !errors.Is(err, errReply) {
			t.Errorf("%s: got error %v, want %v", name, err, errReply)
		}
	}
}
