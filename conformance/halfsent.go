package main

import (
	"context"
	"io"
	"regexp"
	"strconv"
)

// halfSent sends half a body, by length and in chunks, and then the whole with the same key.
func halfSent(ctx context.Context, s *suite) {
	if len(s.o.body) < 2 {
		end(notApplicable("-body is too short to be cut in half"))
	}
	half := s.o.body[:len(s.o.body)/2]
	for _, rest := range []string{
		"Content-Length: " + strconv.Itoa(len(s.o.body)) + "\r\n\r\n" + half,
		"Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(half)), 16) + "\r\n" + half + "\r\n",
	} {
		key := s.newKey(ctx)
		e := s.effects(ctx)
		s.cut(ctx, s.request(key), rest)
		e.moved(ctx, 1, s.fresh(ctx, s.request(key), "a body that was cut off"))
	}
}

var success = regexp.MustCompile(`^HTTP/1\.[01] 2`)

// cut sends a request as far as it is written here, and ends the connection in this direction. It
// waits until the server has noticed: it answers, or closes. A connection that is reset is a way to
// answer nothing.
func (s *suite) cut(ctx context.Context, r request, rest string) {
	conn := s.dial(ctx, r)
	defer conn.close()
	conn.write(r.start() + rest)
	conn.halfClose()
	reply, err := io.ReadAll(conn)
	sent := r.String() + ", cut off in the middle of the body"
	switch {
	case err != nil && conn.within.Err() != nil:
		end(&failure{sent, "nothing, and the connection stays open", "an answer or the connection's end"})
	case success.Match(reply):
		end(&failure{sent, short(string(reply)), "no success: the body never arrived whole"})
	}
}
