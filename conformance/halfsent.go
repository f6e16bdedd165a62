package main

import (
	"context"
	"io"
	"regexp"
	"strconv"
)

// halfSent sends half a body, of a length that was told ahead and in chunks, and then the whole
// with the same key.
func halfSent(ctx context.Context, s *suite) error {
	if len(s.o.body) < 2 {
		return notApplicable("-body is too short to be cut in half")
	}
	half := s.o.body[:len(s.o.body)/2]
	for _, rest := range []string{
		"Content-Length: " + strconv.Itoa(len(s.o.body)) + "\r\n\r\n" + half,
		"Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(half)), 16) + "\r\n" + half + "\r\n",
	} {
		key, err := s.newKey(ctx)
		if err != nil {
			return err
		}
		e, err := s.effects(ctx)
		if err != nil {
			return err
		}
		if err := s.cut(ctx, s.request(key), rest); err != nil {
			return err
		}
		a, err := s.fresh(ctx, s.request(key), "a body that was cut off")
		if err != nil {
			return err
		}
		if err := e.moved(ctx, 1, a); err != nil {
			return err
		}
	}
	return nil
}

var success = regexp.MustCompile(`^HTTP/1\.[01] 2`)

// cut sends a request as far as it is written here, and ends the connection in this direction. It
// waits until the server has noticed: it answers, or closes. A connection that is reset is a way to
// answer nothing.
func (s *suite) cut(ctx context.Context, r request, rest string) error {
	conn, err := s.dial(ctx, r)
	if err != nil {
		return err
	}
	defer conn.close()
	if _, err := io.WriteString(conn, r.start()+rest); err != nil {
		return noAnswer(r, err)
	}
	if err := conn.halfClose(); err != nil {
		return notApplicable(err.Error())
	}
	reply, err := io.ReadAll(conn)
	sent := r.String() + ", cut off in the middle of the body"
	switch {
	case err != nil && conn.within.Err() != nil:
		return &failure{sent, "nothing, and the connection stays open", "an answer or the connection's end"}
	case success.Match(reply):
		return &failure{sent, short(string(reply)), "no success: the body never arrived whole"}
	}
	return nil
}
