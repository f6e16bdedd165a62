package fiberv3_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gofiber/fiber/v3"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/fiberv3"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// answer is what a client gets.
type answer struct {
	Status   int
	Body     string
	Replayed string // the header Idempotent-Replayed
}

func newTokens(t *testing.T) *idempotency.Tokens {
	t.Helper()
	tokens := idempotency.New(storetest.Open(t, redisstore.Config{URL: "embedded:"}), idempotency.Config{})
	t.Cleanup(func() { expect.Error(t, "Close", tokens.Close(context.Background()), nil) })
	return tokens
}

// newApp is a Fiber app whose orders are guarded.
func newApp(t *testing.T, route idempotency.Route, handlers ...any) *fiber.App {
	t.Helper()
	app := fiber.New()
	app.Use(recovery.New())
	route.Lease = time.Hour
	app.Post("/orders/:id", fiberv3.Wrap(newTokens(t).Middleware(route)), handlers...)
	return app
}

// serve serves an app on a port of its own, and returns its address.
func serve(t *testing.T, app *fiber.App) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Error(t, "Listen", err, nil)
	done := make(chan error)
	go func() { done <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		expect.Error(t, "Shutdown", app.Shutdown(), nil)
		expect.Error(t, "the end of the server", <-done, nil)
	})
	return "http://" + listener.Addr().String()
}

// ask sends a request with the key k, unless it has another.
func ask(t *testing.T, r *http.Request) (answer, http.Header) {
	t.Helper()
	if r.Header["Idempotency-Key"] == nil {
		r.Header.Set("Idempotency-Key", "k")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got, err := client.Do(r)
	if err != nil {
		t.Fatalf("no answer to %s %s: %v", r.Method, r.URL, err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	expect.Error(t, "reading the answer", err, nil)
	return answer{got.StatusCode, strings.TrimSpace(string(body)), got.Header.Get("Idempotent-Replayed")}, got.Header
}

func post(t *testing.T, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	expect.Error(t, "NewRequest", err, nil)
	return r
}

func send(t *testing.T, url, body string) answer {
	t.Helper()
	got, _ := ask(t, post(t, url, body))
	return got
}

func TestAnswerOfAHandlerIsSentAndReplayed(t *testing.T) {
	for name, row := range map[string]struct {
		handler fiber.Handler
		want    answer
	}{
		"an answer":                      {func(c fiber.Ctx) error { return c.Status(201).SendString("paid") }, answer{201, "paid", ""}},
		"JSON":                           {func(c fiber.Ctx) error { return c.Status(201).JSON(fiber.Map{"id": 1}) }, answer{201, `{"id":1}`, ""}},
		"a status alone":                 {func(c fiber.Ctx) error { c.Status(204); return nil }, answer{204, "", ""}},
		"the last of two statuses":       {func(c fiber.Ctx) error { c.Status(409); c.Status(402); return nil }, answer{402, "", ""}},
		"an HTTP error":                  {func(fiber.Ctx) error { return fiber.NewError(402, "no money") }, answer{402, "no money", ""}},
		"a plain error":                  {func(fiber.Ctx) error { return errors.New("broken") }, answer{500, "broken", ""}},
		"an error beside an answer":      {func(c fiber.Ctx) error { _ = c.SendString("begun"); return errors.New("late") }, answer{500, "late", ""}},
		"neither an answer nor an error": {func(fiber.Ctx) error { return nil }, answer{200, "", ""}},
		"a redirect":                     {func(c fiber.Ctx) error { return c.Redirect().Status(303).To("/orders/2") }, answer{303, "", ""}},
		"a status that is none":          {func(c fiber.Ctx) error { c.Status(42); return nil }, answer{500, "fiberv3: status 42: from 100 to 999", ""}},
		"a file":                         {func(c fiber.Ctx) error { return c.SendFile("testdata/receipt.txt") }, answer{200, "a receipt", ""}},
		"a stream":                       {func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("xxx")) }, answer{200, "xxx", ""}},
		"a stream of a known length":     {func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("xxx"), 3) }, answer{200, "xxx", ""}},
		"a stream in pieces": {func(c fiber.Ctx) error {
			return c.SendStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("ab"); _ = w.Flush(); _, _ = w.WriteString("c") })
		}, answer{200, "abc", ""}},
		"a hijack": {func(c fiber.Ctx) error { c.RequestCtx().Hijack(func(net.Conn) {}); return nil },
			answer{500, "fiberv3: a guarded handler cannot hijack its connection: what it sends could not be recorded", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			url := serve(t, newApp(t, idempotency.Route{}, func(c fiber.Ctx) error { runs.Add(1); return row.handler(c) })) + "/orders/1"
			first, header := ask(t, post(t, url, "{}"))
			expect.Equal(t, "the first request", first, row.want)
			again := row.want
			again.Replayed = "true"
			second, headerAgain := ask(t, post(t, url, "{}"))
			expect.Equal(t, "its repeat", second, again)
			for _, name := range []string{"Content-Type", "Content-Length", "Location"} {
				expect.Equal(t, "the repeat's header "+name, headerAgain.Get(name), header.Get(name))
			}
			expect.Equal(t, "runs of the handler", runs.Load(), 1)
		})
	}
}
func TestPanicOfAHandlerLeavesTheOutcomeUnknown(t *testing.T) {
	var runs atomic.Int64
	url := serve(t, newApp(t, idempotency.Route{}, func(fiber.Ctx) error { runs.Add(1); panic("in the middle of it") })) + "/orders/1"
	expect.Equal(t, "the status of the first request", send(t, url, "").Status, 500)
	expect.Equal(t, "the status of its repeat", send(t, url, "").Status, 409)
	expect.Equal(t, "runs of the handler", runs.Load(), 1)
}

func TestStreamThatBreaksOffLeavesTheOutcomeUnknown(t *testing.T) {
	for name, size := range map[string][]int{"of a length that is unknown": nil, "shorter than its length": {9}} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, newApp(t, idempotency.Route{}, func(c fiber.Ctx) error {
				return c.SendStream(io.MultiReader(strings.NewReader("xxx"), iotest.ErrReader(io.ErrUnexpectedEOF)), size...)
			})) + "/orders/1"
			expect.Equal(t, "the status of the first request", send(t, url, "").Status, 503)
			expect.Equal(t, "the status of its repeat", send(t, url, "").Status, 409)
		})
	}
}

// A stream over the limit is sent while it goes on: its client has the beginning before the handler
// writes the end, and a process has no more of it in memory than that.
func TestStreamOverTheLimitIsSentAsItComes(t *testing.T) {
	received, runs := make(chan struct{}), 0
	url := serve(t, newApp(t, idempotency.Route{MaxAnswer: 1000}, func(c fiber.Ctx) error {
		runs++
		return c.Status(201).SendStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString(strings.Repeat("x", 2000))
			_ = w.Flush()
			<-received
			_, _ = w.WriteString("end")
		})
	})) + "/orders/1"
	r := post(t, url, "")
	r.Header.Set("Idempotency-Key", "k")
	got, err := http.DefaultClient.Do(r)
	expect.Error(t, "the first request", err, nil)
	defer got.Body.Close()
	begin := make([]byte, 2000)
	_, err = io.ReadFull(got.Body, begin)
	expect.Error(t, "reading the beginning", err, nil)
	close(received)
	rest, err := io.ReadAll(got.Body)
	expect.Error(t, "reading the rest", err, nil)
	expect.Equal(t, "the rest", string(rest), "end")
	again, header := ask(t, post(t, url, ""))
	expect.Equal(t, "its repeat", again, answer{201, "", "true"})
	expect.Equal(t, "the body of the repeat", header.Get("Idempotent-Body"), "not-kept")
	expect.Equal(t, "runs of the handler", runs, 1)
}

func TestAnswerOverTheLimitIsSentAndNotKept(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	url := serve(t, newApp(t, idempotency.Route{MaxAnswer: 1000}, func(c fiber.Ctx) error { return c.SendString(long) })) + "/orders/1"
	expect.Equal(t, "the first request", send(t, url, ""), answer{200, long, ""})
	expect.Equal(t, "its repeat", send(t, url, ""), answer{200, "", "true"})
}

func TestBodyOverTheLimitIsRefused(t *testing.T) {
	for name, config := range map[string]fiber.Config{"in memory": {}, "as a stream": {StreamRequestBody: true}} {
		t.Run(name, func(t *testing.T) {
			app := fiber.New(config)
			app.Post("/orders/:id", fiberv3.Wrap(newTokens(t).Middleware(idempotency.Route{MaxBody: 10, Optional: true})),
				func(c fiber.Ctx) error { return c.Send(c.Body()) })
			url := serve(t, app) + "/orders/1"
			chunked := func(body string) *http.Request {
				r := post(t, url, body)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
				return r
			}
			expect.Equal(t, "a body over the limit", send(t, url, "eleven byte").Status, 413)
			got, _ := ask(t, chunked("eleven byte"))
			expect.Equal(t, "one of unknown length", got.Status, 413)
			expect.Equal(t, "a body within it, with the same key", send(t, url, "ten bytes."), answer{200, "ten bytes.", ""})
			expect.Equal(t, "its repeat", send(t, url, "ten bytes."), answer{200, "ten bytes.", "true"})
			bare := chunked("eleven byte")
			bare.Header["Idempotency-Key"] = []string{}
			got, _ = ask(t, bare)
			expect.Equal(t, "a body over the limit without a key", got.Status, 413)
		})
	}
}

// The scope of a key is the route, not the path: one key for two orders is a mistake that is told.
func TestKeyBelongsToTheRouteOfFiber(t *testing.T) {
	app := fiber.New()
	guard, patterns := newTokens(t).Middleware(idempotency.Route{}), make(chan string, 9)
	seen := func(next http.Handler) http.Handler {
		guarded := guard(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { patterns <- r.Pattern; guarded.ServeHTTP(w, r) })
	}
	paid := func(c fiber.Ctx) error { return c.SendString("paid") }
	app.Group("/shop").Post("/orders/:id", fiberv3.Wrap(seen), paid)
	app.Use("/all", fiberv3.Wrap(seen))
	app.Post("/all/:id", paid)
	url := serve(t, app)
	expect.Equal(t, "the first order", send(t, url+"/shop/orders/1", ""), answer{200, "paid", ""})
	expect.Equal(t, "its pattern", <-patterns, "POST /shop/orders/:id")
	expect.Equal(t, "the status of another order with its key", send(t, url+"/shop/orders/2", "").Status, 422)
	<-patterns
	expect.Equal(t, "an order behind App.Use", send(t, url+"/all/1", ""), answer{200, "paid", ""})
	expect.Equal(t, "its pattern", <-patterns, "")
	expect.Equal(t, "another one with its key", send(t, url+"/all/2", ""), answer{200, "paid", ""})
}

func TestHandlerHasTheMiddlewaresContextAndMiddlewareBeforeItHasItsOwn(t *testing.T) {
	app := fiber.New(fiber.Config{PassLocalsToContext: true})
	type caller struct{}
	tokens := newTokens(t)
	route := idempotency.Route{Principal: func(r *http.Request) (string, error) {
		name, _ := fiber.ValueFromContext[string](r.Context(), caller{})
		return name, nil
	}}
	status, length, same := 0, 0, false
	app.Use(func(c fiber.Ctx) error {
		fiber.StoreInContext(c, caller{}, c.Get("X-Caller"))
		c.Set("X-Outside", "before")
		before := c.Context()
		err := c.Next()
		status, length, same = c.Response().StatusCode(), len(c.Response().Body()), c.Context() == before
		return err
	})
	app.Post("/orders/:id", fiberv3.Wrap(tokens.Middleware(route)), func(c fiber.Ctx) error {
		_, guarded := idempotency.FromContext(c.Context())
		c.Append("X-Two", "1")
		c.Response().Header.Add("X-Two", "2")
		c.Cookie(&fiber.Cookie{Name: "session", Value: "s"})
		return c.Status(http.StatusTeapot).SendString(fmt.Sprintf("guarded %v, order %s: %s", guarded, c.Params("id"), c.Body()))
	})
	url := serve(t, app) + "/orders/7"
	as := func(name string) (answer, http.Header) {
		r := post(t, url, "tea")
		r.Header.Set("X-Caller", name)
		return ask(t, r)
	}
	want := answer{http.StatusTeapot, "guarded true, order 7: tea", ""}
	got, header := as("ann")
	expect.Equal(t, "the answer", got, want)
	expect.Equal(t, "its headers", []string{header.Get("X-Outside"), strings.Join(header.Values("X-Two"), ","), header.Get("Set-Cookie")},
		[]string{"before", "1,2", "session=s; path=/; SameSite=Lax"})
	expect.Equal(t, "the status that middleware before it sees", status, http.StatusTeapot)
	expect.Equal(t, "the length that middleware before it sees", length, len(want.Body))
	expect.Equal(t, "its context is that of before", same, true)
	got, _ = as("bob")
	expect.Equal(t, "the answer to another caller with the key", got, want)
	want.Replayed = "true"
	got, header = as("ann")
	expect.Equal(t, "the repeat", got, want)
	expect.Equal(t, "its headers", []string{header.Get("X-Outside"), strings.Join(header.Values("X-Two"), ","), header.Get("Set-Cookie")}, []string{"before", "1,2", ""})
}

func TestTwoKeysAreRefused(t *testing.T) {
	url := serve(t, newApp(t, idempotency.Route{}, func(fiber.Ctx) error { return nil })) + "/orders/1"
	r := post(t, url, "")
	r.Header["Idempotency-Key"] = []string{"a", "b"}
	got, _ := ask(t, r)
	expect.Equal(t, "the status", got.Status, 400)
}

// Fiber puts a form that it has taken apart together in another order each time.
func TestFormOfPartsIsTheSameRequestEachTime(t *testing.T) {
	var form bytes.Buffer
	to := multipart.NewWriter(&form)
	for name := range strings.SplitSeq("the quick brown fox jumps over a lazy dog", " ") {
		expect.Error(t, "WriteField", to.WriteField(name, name), nil)
		file, err := to.CreateFormFile("file-"+name, name+".txt")
		expect.Error(t, "CreateFormFile", err, nil)
		_, _ = io.WriteString(file, name)
	}
	expect.Error(t, "Close", to.Close(), nil)
	for name, config := range map[string]fiber.Config{"in memory": {}, "as a stream": {StreamRequestBody: true}, "in one piece": {DisablePreParseMultipartForm: true}} {
		t.Run(name, func(t *testing.T) {
			app := fiber.New(config)
			app.Post("/", fiberv3.Wrap(newTokens(t).Middleware(idempotency.Route{})), func(c fiber.Ctx) error {
				file, err := c.FormFile("file-fox")
				if err != nil {
					return err
				}
				return c.SendString(c.FormValue("dog") + " " + file.Filename)
			})
			url := serve(t, app)
			order := func(body string) answer {
				r := post(t, url, body)
				r.Header.Set("Content-Type", to.FormDataContentType())
				got, _ := ask(t, r)
				return got
			}
			expect.Equal(t, "the first request", order(form.String()), answer{200, "dog fox.txt", ""})
			for range 5 {
				expect.Equal(t, "its repeat", order(form.String()), answer{200, "dog fox.txt", "true"})
			}
			expect.Equal(t, "the status with another field", order(strings.Replace(form.String(), "lazy", "busy", 2)).Status, 422)
			expect.Equal(t, "the status with another file", order(strings.Replace(form.String(), "\r\n\r\nfox", "\r\n\r\nowl", 2)).Status, 422)
		})
	}
}

// Without a guard an answer is Fiber's own: a stream begins at once, and a connection can be taken.
func TestWhatPassesUnguardedIsFibers(t *testing.T) {
	app, received := fiber.New(), make(chan struct{})
	app.Use(fiberv3.Wrap(newTokens(t).Middleware(idempotency.Route{PassSafe: true})))
	app.Get("/stream", func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString("begin")
			_ = w.Flush()
			<-received
		})
	})
	app.Get("/raw", func(c fiber.Ctx) error {
		c.RequestCtx().HijackSetNoResponse(true)
		c.RequestCtx().Hijack(func(to net.Conn) { _, _ = io.WriteString(to, "HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nraw") })
		return nil
	})
	app.Get("/error", func(fiber.Ctx) error { return fiber.NewError(404, "no such thing") })
	url := serve(t, app)
	got, err := http.Get(url + "/stream")
	expect.Error(t, "GET /stream", err, nil)
	defer got.Body.Close()
	begin := make([]byte, 5)
	_, err = io.ReadFull(got.Body, begin)
	expect.Error(t, "reading the beginning", err, nil)
	expect.Equal(t, "the beginning", string(begin), "begin")
	close(received)
	for path, want := range map[string]answer{"/raw": {202, "raw", ""}, "/error": {404, "no such thing", ""}} {
		r := post(t, url+path, "")
		r.Method, r.Body, r.ContentLength = http.MethodGet, nil, 0
		got, _ := ask(t, r)
		expect.Equal(t, path, got, want)
	}
}

// Fiber's timeout answers while the handler goes on, or before it has begun: then the key is free.
func TestTimeoutOfFiberIsNoAnswerOfTheHandler(t *testing.T) {
	first := func(c fiber.Ctx) bool { return c.Get("X-Again") == "" }
	ends := func(h fiber.Handler) fiber.Handler {
		return timeout.New(h, timeout.Config{Timeout: time.Hour, Next: func(c fiber.Ctx) bool { return !first(c) }})
	}
	for name, row := range map[string]struct {
		chain func(guard, ending, hang, pay fiber.Handler) []any
		want  int
	}{
		"within the guard": {func(guard, ending, hang, _ fiber.Handler) []any { return []any{guard, ending, ends(hang)} }, 409},
		"around the guard": {func(guard, ending, hang, _ fiber.Handler) []any { return []any{ending, ends(guard), hang} }, 409},
		"around the guard, before the handler has begun": {func(guard, ending, hang, pay fiber.Handler) []any {
			return []any{ending, ends(func(c fiber.Ctx) error { return errors.Join(hang(c), guard(c)) }), pay}
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			answered, ended := make(chan struct{}), make(chan struct{})
			hang := func(c fiber.Ctx) error {
				if first(c) {
					end() // the timeout fires
					<-answered
				}
				return nil
			}
			app := fiber.New()
			ending := func(c fiber.Ctx) error { c.SetContext(ctx); return c.Next() }
			guard := fiberv3.Wrap(newTokens(t).Middleware(idempotency.Route{}))
			chain := row.chain(func(c fiber.Ctx) error {
				if first(c) {
					defer close(ended)
				}
				return guard(c)
			}, ending, hang, func(c fiber.Ctx) error { return c.SendString("paid") })
			app.Post("/", chain[0], chain[1:]...)
			url := serve(t, app)
			expect.Equal(t, "the status of the first request", send(t, url, "").Status, 408)
			close(answered)
			<-ended
			again := post(t, url, "")
			again.Header.Set("X-Again", "yes")
			ctx = context.Background()
			got, _ := ask(t, again)
			expect.Equal(t, "the status of its repeat", got.Status, row.want)
			expect.Equal(t, "its outcome is unknown", strings.Contains(got.Body, "outcome-unknown"), row.want == 409)
		})
	}
}
