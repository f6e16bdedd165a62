package main

import (
	"bytes"
	"io"
	"net/http"
)

// handlerTransport has a handler of this process answer requests.
type handlerTransport struct{ handler http.Handler }

// RoundTrip answers a request.
func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.RequestURI = asked.URL.RequestURI()
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	a := &answer{header: http.Header{}}
	t.handler.ServeHTTP(a, asked)
	a.WriteHeader(http.StatusOK) // unless it has one
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}, nil
}

// answer is what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(p []byte) (int, error) { a.WriteHeader(http.StatusOK); return a.body.Write(p) }
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}
