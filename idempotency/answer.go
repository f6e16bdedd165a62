package idempotency

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// Answer is the answer of an attempt, as it is recorded and replayed.
type Answer struct {
	Status int         // 200 to 599
	Header http.Header // only headers that are safe to replay
	Body   []byte
	// the body was too large or was streamed: repeats get status and headers, and a header says so
	NotKept bool
}

// check refuses an answer that could not be replayed.
func (a Answer) check() error {
	if a.Status < http.StatusOK || a.Status > maxStatus {
		return fmt.Errorf("idempotency: the status of an answer is 200 to %d, not %d", maxStatus, a.Status)
	}
	return nil
}

// neverReplayed are the headers that belong to one connection, one client session or one point in
// time (hop by hop: RFC 9110, section 7.6.1).
func neverReplayed(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
		"Set-Cookie", "Date", "Age", "Content-Length", "X-Request-Id", "Idempotent-Replayed":
		return true
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

// removeUnsafe removes the headers that are never replayed, those that Connection names included.
func removeUnsafe(header http.Header) {
	for _, names := range header.Values("Connection") {
		for name := range strings.SplitSeq(names, ",") {
			header.Del(textproto.TrimString(name))
		}
	}
	for name := range header {
		if neverReplayed(http.CanonicalHeaderKey(name)) {
			delete(header, name)
		}
	}
}

// unguessed keeps net/http from adding a Content-Type by a look at the bytes: it would be one that
// the handler has not given, and of a replay perhaps another one.
func unguessed(header http.Header) {
	if _, isThere := header["Content-Type"]; !isThere {
		header["Content-Type"] = nil
	}
}

// setLength says how long the body is, so that a client whose connection breaks can tell. Beyond a
// few kilobytes net/http does not. Without a body the length is not known: an answer to HEAD has
// that of another.
func (a Answer) setLength(header http.Header) {
	if len(a.Body) > 0 {
		header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
}

// fits reports whether an answer may be replayed to a request: a part of a body only to one that
// asks for a range, and "not modified" only to one with a condition.
func (a Answer) fits(r *http.Request) bool {
	switch a.Status {
	case http.StatusPartialContent:
		return r.Header.Get("Range") != ""
	case http.StatusNotModified:
		return r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Modified-Since") != ""
	}
	return true
}

func (a Answer) replay(w http.ResponseWriter) {
	header := w.Header()
	maps.Copy(header, a.Header)
	header.Set("Idempotent-Replayed", "true")
	if a.NotKept {
		header.Del("Content-Type")
		header.Del("Content-Encoding")
		header.Set("Idempotent-Body", "not-kept")
	}
	unguessed(header)
	a.setLength(header)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the client may have hung up; the answer stays recorded
}
