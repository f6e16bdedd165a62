package fiberv3

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// asked is the request as net/http has it. Fiber uses its memory again for the next request, and a
// guard may need names and keys for longer: all but the body is copied.
func asked(c fiber.Ctx) (*http.Request, error) {
	from := c.Request()
	target := string(from.Header.RequestURI())
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	r := (&http.Request{
		Method: strings.Clone(c.Method()), URL: parsed, RequestURI: target, Host: string(from.Host()),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		RemoteAddr: c.RequestCtx().RemoteAddr().String(), TLS: c.RequestCtx().TLSConnectionState(),
	}).WithContext(c.Context())
	for name, value := range from.Header.All() {
		r.Header.Add(string(name), string(value))
	}
	r.Header.Del("Host") // it is in Host, as net/http has it
	if route := strings.Clone(c.FullPath()); fiber.RoutePatternMatch(c.Path(), route, c.App().Config()) {
		r.Pattern = r.Method + " " + route
	}
	if from.IsBodyStream() {
		r.Body, r.ContentLength = io.NopCloser(from.BodyStream()), int64(max(from.Header.ContentLength(), -1))
		return r, nil
	}
	body := bodyOf(c)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r, nil
}

// bodyOf is the body that is in memory. Fiber takes a form apart, and puts it together in another
// order each time: here it has one order.
func bodyOf(c fiber.Ctx) []byte {
	boundary := string(c.Request().Header.MultipartFormBoundary())
	if boundary == "" {
		return c.BodyRaw()
	}
	form, err := c.MultipartForm()
	if err != nil {
		return c.BodyRaw()
	}
	body, err := inOrder(form, boundary)
	if err != nil {
		return c.BodyRaw()
	}
	return body
}

// inOrder is a form with its fields, and then its files, ordered by name.
func inOrder(form *multipart.Form, boundary string) ([]byte, error) {
	var body bytes.Buffer
	to := multipart.NewWriter(&body)
	faults := []error{to.SetBoundary(boundary)}
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		for _, value := range form.Value[name] {
			faults = append(faults, to.WriteField(name, value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[name] {
			faults = append(faults, writeFile(to, file))
		}
	}
	return body.Bytes(), errors.Join(append(faults, to.Close())...)
}

func writeFile(to *multipart.Writer, file *multipart.FileHeader) error {
	part, err := to.CreatePart(file.Header)
	if err != nil {
		return err
	}
	from, err := file.Open()
	if err != nil {
		return err
	}
	_, err = io.Copy(part, from)
	return errors.Join(err, from.Close())
}

// exchange is one request, and what the middleware answers to it. It is the middleware's response.
type exchange struct {
	c      fiber.Ctx
	header http.Header
	status int // 0 = nothing is answered yet
	body   []byte
	rest   io.ReadCloser // follows the body, if there is one
	direct bool          // the answer is Fiber's own
	err    error         // what handlers without a guard returned
}

// Header implements [http.ResponseWriter].
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader implements [http.ResponseWriter]; informational answers (1xx) are dropped.
func (x *exchange) WriteHeader(status int) {
	if status >= http.StatusOK {
		x.status = cmp.Or(x.status, status)
	}
}

// Write implements [http.ResponseWriter].
func (x *exchange) Write(some []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	x.body = append(x.body, some...)
	return len(some), nil
}

// end makes what the middleware has answered the answer of Fiber.
func (x *exchange) end() error {
	if x.direct || x.c.IsAbandoned() {
		return x.err
	}
	put(x.c, x.header)
	response := x.c.Response()
	response.SetStatusCode(cmp.Or(x.status, http.StatusOK))
	if x.rest == nil {
		response.SetBodyRaw(x.body)
		return nil
	}
	size, err := strconv.Atoi(x.header.Get("Content-Length"))
	if err != nil {
		size = -1
	}
	response.SetBodyStream(&stream{io.MultiReader(bytes.NewReader(x.body), x.rest), x.rest}, size)
	return nil
}

// takeBody reads the body of a request that Fiber does not hold in memory, as far as the middleware
// allows, and gives it to the handlers.
func (x *exchange) takeBody(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return fiber.ErrRequestEntityTooLarge
	}
	if err != nil {
		return fiber.NewError(fiber.StatusBadRequest, "the request's body breaks off")
	}
	x.c.Request().SetBodyRaw(body)
	return nil
}

// stream is the body of an answer, and what ends it.
type stream struct {
	io.Reader
	io.Closer
}

// takeStream takes the stream off Fiber's response. To set another body would close it.
func (x *exchange) takeStream() *stream {
	response := x.c.Response()
	taken := &stream{response.BodyStream(), io.NopCloser(nil)}
	if closer, is := taken.Reader.(io.Closer); is {
		taken.Closer = closer
	}
	var head fasthttp.ResponseHeader
	response.Header.CopyTo(&head)
	*response = fasthttp.Response{SkipBody: response.SkipBody}
	head.CopyTo(&response.Header)
	return taken
}

// copyStream gives a stream to the middleware until that begins to send: what is left then is not
// recorded, and stays a stream. One that breaks off before leaves an answer that is shorter than it
// says.
func (x *exchange) copyStream(w http.ResponseWriter, from *stream) {
	x.head(w)
	if size := x.c.Response().Header.ContentLength(); size >= 0 {
		w.Header().Set("Content-Length", strconv.Itoa(size))
	}
	some, given := make([]byte, 32<<10), 0
	var broken, refused error
	for broken == nil && refused == nil {
		if x.status != 0 {
			x.rest = from
			return
		}
		var n int
		n, broken = from.Read(some)
		given += n
		if n > 0 {
			_, refused = w.Write(some[:n])
		}
	}
	if broken != nil && !errors.Is(broken, io.EOF) {
		w.Header().Set("Content-Length", strconv.Itoa(given+1))
	}
	_ = from.Close() // of what has been read
}

// headerOf is what has been set of the response's headers: fasthttp's own type of content is no
// part of it, and neither is a length, which follows from the body.
func headerOf(c fiber.Ctx) http.Header {
	header, set := &c.Response().Header, http.Header{}
	header.SetNoDefaultContentType(true)
	defer header.SetNoDefaultContentType(c.App().Config().DisableDefaultContentType)
	for name, value := range header.All() {
		set.Add(string(name), string(value))
	}
	set.Del("Content-Length")
	return set
}

// put makes these the response's headers.
func put(c fiber.Ctx, header http.Header) {
	to := &c.Response().Header
	for name := range headerOf(c) {
		to.Del(name)
	}
	for name, values := range header {
		if slices.Contains(framing, name) || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, value := range values {
			to.Add(name, value)
		}
	}
}

// framing are the headers that fasthttp writes by itself. Trailers are not passed on.
var framing = []string{"Content-Length", "Transfer-Encoding", "Trailer"}
