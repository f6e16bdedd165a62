package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// handlerAnswers sends a request to a handler of this process and returns its answer, unread.
func handlerAnswers(ctx context.Context, t *testing.T, handler http.HandlerFunc) *http.Response {
	t.Helper()
	transport := &handlerTransport{handler: handler}
	t.Cleanup(transport.running.Wait)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/a%2Fb?c=d", strings.NewReader("asked"))
	expect.NoError(t, "make the request", err)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatalf("POST /a%%2Fb?c=d: %v", err)
	}
	return response
}

func TestAnswerOfThisProcessIsReadWhileItIsWritten(t *testing.T) {
	wasRead := make(chan struct{})
	response := handlerAnswers(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		expect.Equal(t, "body of the request", string(body), "asked")
		expect.Error(t, "reading the body of the request", err, nil)
		expect.Equal(t, "target of the request", r.RequestURI, "/a%2Fb?c=d")
		w.Header().Set("X-Said", "before")
		w.WriteHeader(http.StatusAccepted)
		w.Header().Set("X-Said", "too late")
		_, _ = io.WriteString(w, "first")
		<-wasRead
		_, _ = io.WriteString(w, " second")
	})
	expect.Equal(t, "status", response.StatusCode, http.StatusAccepted)
	expect.Equal(t, "header X-Said", response.Header.Get("X-Said"), "before")
	first := make([]byte, len("first"))
	_, err := io.ReadFull(response.Body, first)
	expect.Error(t, "reading the first part", err, nil)
	close(wasRead)
	second, err := io.ReadAll(response.Body)
	expect.Error(t, "reading the second part", err, nil)
	expect.Equal(t, "the answer", string(first)+string(second), "first second")
}

// A handler ends when its answer is not read any more, as it does on a connection.
func TestHandlerOfThisProcessEndsWithItsReader(t *testing.T) {
	ended := make(chan error, 1)
	response := handlerAnswers(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 1<<20))
		ended <- err
	})
	expect.Error(t, "closing the answer", response.Body.Close(), nil)
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writing an answer that nothing reads: got %v, want %v", err, io.ErrClosedPipe)
	}
	ctx, cancel := context.WithCancel(t.Context())
	response = handlerAnswers(ctx, t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	cancel()
	_, err := io.ReadAll(response.Body)
	expect.Error(t, "reading an answer that ends with its request", err, nil)
}

// A command that goes to Redis itself says what Redis said, which a service keeps to its log.
func TestCommandAtARedisSaysWhatItFailedWith(t *testing.T) {
	redis := redistest.Start(t)
	at := []string{"--redis", redis.URL()}
	redis.Kill()
	for _, args := range []string{"incr orders", "counter get orders", "counter ls", "lock ls", "lock break a", "worker ls", "worker create a", "id", "id segment a", "operation ls --in-doubt", "token issue", "token show a"} {
		execute(t, nil, append(strings.Fields(args), at...)...).exits(tryLater, "connection refused")
	}
}

// A command without a service says what to try.
func TestCommandWithoutAServiceSaysWhatToTry(t *testing.T) {
	for _, args := range []string{"incr orders", "lock ls", "worker run orders -- true", "lock run a -- true", "id segment a"} {
		execute(t, map[string]string{"COATCHECK_SERVER": "http://127.0.0.1:1"}, strings.Fields(args)...).exits(tryLater, "connection refused", "coatcheck serve", "--redis")
	}
	at := map[string]string{"COATCHECK_SERVER": serve(t).banner.URL}
	execute(t, at, "counter", "get", "nonsense").exits(failed, "Nothing has that name")
}

// What the service in this process does not need is not made: a command asks once and ends.
func TestServiceOfACommandLeasesNoWorkerID(t *testing.T) {
	at := []string{"--redis", redistest.Start(t).URL()}
	execute(t, nil, append([]string{"incr", "orders"}, at...)...).exits(done)
	expect.Equal(t, "worker ls after incr", execute(t, nil, append([]string{"worker", "ls", "--json"}, at...)...).exits(done).stdout, `{"pools":[]}`+"\n")
}
