package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

// Ways to say a body's length that two servers may understand differently, with a request hidden in
// what one of them takes for the body. The service reads each in one way or refuses it: the hidden
// request is never run, and where it is doubtful the connection ends.
func TestHiddenRequestsAreNeverRun(t *testing.T) {
	t.Parallel()
	const hidden = "POST /incr/hidden HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	chunked := "0\r\n\r\n"
	for what, rest := range map[string]string{
		"a length and chunks":                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + inChunks(hidden, 1000),
		"chunks twice":                       "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + hidden,
		"chunks and another coding":          "Transfer-Encoding: chunked, identity\r\n\r\n" + chunked + hidden,
		"another coding and chunks":          "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked + hidden,
		"chunks with a tab":                  "Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n\r\n" + inChunks(hidden, 1000),
		"chunks in another way":              "Transfer-Encoding: xchunked\r\n\r\n" + chunked + hidden,
		"chunks with a control":              "Transfer-Encoding: \x0bchunked\r\n\r\n" + chunked + hidden,
		"chunks on a folded line":            "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n" + inChunks(hidden, 1000),
		"space before the colon":             "Content-Length : 66\r\n\r\n" + hidden,
		"a space before the coding's colon":  "Transfer-Encoding : chunked\r\n\r\n" + chunked + hidden,
		"two lengths":                        "Content-Length: 0\r\nContent-Length: 66\r\n\r\n" + hidden,
		"a list of lengths":                  "Content-Length: 0, 66\r\n\r\n" + hidden,
		"a length with a sign":               "Content-Length: +66\r\n\r\n" + hidden,
		"a negative length":                  "Content-Length: -1\r\n\r\n" + hidden,
		"a length in hex":                    "Content-Length: 0x42\r\n\r\n" + hidden,
		"a length with an underscore":        "Content-Length: 6_6\r\n\r\n" + hidden,
		"a length beyond 64 bits":            "Content-Length: 18446744073709551682\r\n\r\n" + hidden,
		"an empty length":                    "Content-Length: \r\n\r\n" + hidden,
		"no name":                            ": 66\r\n\r\n" + hidden,
		"a header in the first line's place": " Content-Length: 66\r\n\r\n" + hidden,
		"NUL in a name":                      "Content-\x00Length: 66\r\n\r\n" + hidden,
		"a bare CR as a line end":            "X: y\rContent-Length: 66\r\n\r\n" + hidden,
		"a chunk with a sign":                "Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + hidden,
		"a chunk in 0x":                      "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + hidden,
		"a chunk that is too long to be":     "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + hidden,
		"a chunk with a bare LF":             "Transfer-Encoding: chunked\r\n\r\n1\n \n0\n\n",
		"a chunk longer than said":           "Transfer-Encoding: chunked\r\n\r\n1\r\n  " + hidden,
		"an extension with a line end":       "Transfer-Encoding: chunked\r\n\r\n1;a=\n\r\n \r\n0;\r\n\r\n",
		"an extension without end":           "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 1<<17) + hidden,
		"HTTP/1.0 with chunks":               "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n" + inChunks(hidden, 1000),
		"a trailer that is a length":         "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 66\r\n\r\n",
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				version := "HTTP/1.1"
				if strings.HasPrefix(what, "HTTP/1.0") {
					version = "HTTP/1.0"
				}
				s := hurried(t)
				// of which one reads its body
				for _, path := range []string{"/payments", "/token"} {
					for _, a := range s.raw(t, "POST "+path+" "+version+"\r\nHost: localhost\r\n"+rest) {
						if a.status == 200 {
							t.Errorf("to POST %s: %v; want a refusal", path, a)
						}
					}
				}
				s.do(t, "GET", "/counter/hidden", "").wantStatus(t, 404)
			})
		})
	}
}

func TestTwoRequestsOnOneConnectionAreTwo(t *testing.T) {
	s := onEmbedded(t)
	answers := s.raw(t, "POST /incr/seen HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}POST /incr/seen HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if len(answers) != 2 || answers[1].status != 200 {
		t.Errorf("got %v, want two answers, the second with status 200", answers)
	}
}
