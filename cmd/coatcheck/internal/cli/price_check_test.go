//go:build check && linux

package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

const (
	greedyAtOnce = 256     // requests of the greedy caller
	namesOfAKind = 1000    // as many as a page has
	largestBody  = 1 << 20 // bytes, as --max-body-bytes
	honestTime   = 15 * time.Second
)

// largestValues are the largest values of the parameters that make an operation dear. The others
// are left out.
var largestValues = map[string]string{
	"by": "1000", "template": "{n:18}" + strings.Repeat("a", 90), "batchSize": "100000", "state": "in-doubt", "bizType": "t", "snowflakeId": "912007862023094272",
}

// filled are the parameters of paths.
var filled = map[string]string{
	"{key}": "greedy", "{pool}": "greedy", "{tag}": "greedy", "{name}": "greedy", "{token}": "t", "{id}": "912007862023094272", "{worker_id}": "0",
	"{code}": "not-found", "{file}": "console.js", "{operation}": strings.Repeat("A", 32),
}

// asked is an operation at its largest bounds.
type asked struct {
	method, target string
	operation      string
	bodies         [2][]byte // as long as one may be, and as short; half of the requests have each
}

// operationsAtTheirBounds reads what there is from the document.
func operationsAtTheirBounds(t *testing.T) (all []asked) {
	t.Helper()
	for path, item := range apitest.Published().Document.Paths.Map() {
		if path == "/payments" {
			continue // the demo
		}
		for method, operation := range item.Operations() {
			target := path
			for name, value := range filled {
				target = strings.ReplaceAll(target, name, value)
			}
			if strings.Contains(target, "{") {
				t.Fatalf("%s: no value for a parameter of the path", path)
			}
			var query []string
			for _, of := range []openapi3.Parameters{item.Parameters, operation.Parameters} {
				for _, parameter := range of {
					if value := largest(parameter.Value); value != "" {
						query = append(query, parameter.Value.Name+"="+value)
					}
				}
			}
			slices.Sort(query)
			if len(query) > 0 {
				target += "?" + strings.Join(query, "&")
			}
			all = append(all, asked{method, target, method + " " + path, bodiesOf(operation)})
		}
	}
	removes := func(a asked) bool { return a.method == http.MethodDelete } // what others look at
	slices.SortFunc(all, func(a, b asked) int {
		return cmp.Or(cmp.Compare(strconv.FormatBool(removes(a)), strconv.FormatBool(removes(b))), strings.Compare(a.operation, b.operation))
	})
	return all
}

func largest(p *openapi3.Parameter) string {
	switch {
	case p.In != "query":
		return ""
	case largestValues[p.Name] != "":
		return largestValues[p.Name]
	case p.Name == "n" || p.Name == "backlog":
		return strconv.FormatFloat(*p.Schema.Value.Max, 'f', 0, 64)
	}
	return ""
}

// bodiesOf are the operation's example, as long as a body may be and as it is. A long body takes
// memory, and of short ones more are under way.
func bodiesOf(operation *openapi3.Operation) (bodies [2][]byte) {
	if operation.RequestBody == nil {
		return bodies
	}
	text := []byte("{}")
	if media := operation.RequestBody.Value.Content["application/json"]; media != nil && media.Example != nil {
		if example, err := json.Marshal(media.Example); err == nil {
			text = example
		}
	}
	return [2][]byte{append(slices.Clip(text), bytes.Repeat([]byte(" "), largestBody-len(text))...), text}
}

// caller asks the target with a key.
type caller struct {
	to     string
	key    string
	client *http.Client
}

func newCaller(to *target, key access.Key, limit time.Duration) *caller {
	return &caller{"http://" + to.addr, key.Text(), &http.Client{Timeout: limit, Transport: &http.Transport{MaxIdleConnsPerHost: greedyAtOnce}}}
}

// ask returns the status, 0 for none.
func (c *caller) ask(ctx context.Context, method, target, body string, into any, header ...string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.to+target, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Accept-Encoding", "gzip") // the dearer one; it is not unpacked
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if into != nil && strings.Contains(response.Header.Get("Content-Type"), "json") {
		err = json.NewDecoder(response.Body).Decode(into)
	}
	_, unread := io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, unread)
}

// fill has so many names of each kind, and a large answer for each kind of key.
func (c *caller) fill(t *testing.T) {
	t.Helper()
	long := strings.Repeat("a", 190)
	var work sync.WaitGroup
	next := make(chan int)
	for range 32 {
		work.Go(func() {
			for i := range next {
				name := fmt.Sprintf("%s:%d", long, i)
				c.must(t, "POST", "/incr/"+name, "")
				c.must(t, "POST", "/lock/"+name, `{"ttl_ms":3600000,"owner":"`+long+`"}`)
				c.must(t, "PUT", "/worker/"+name, `{"layout":"40/12/11"}`)
				c.must(t, "GET", "/id/segment/"+name, "")
				c.must(t, "POST", "/operation/claim", `{"key":"`+name+`","fingerprint":"f","lease_ms":100,"scope":"`+name+`"}`)
			}
		})
	}
	for i := range namesOfAKind {
		next <- i
	}
	close(next)
	work.Wait()
	c.must(t, "POST", "/incr/greedy", "")
	c.must(t, "PUT", "/worker/greedy", `{"layout":"40/12/11"}`)
	c.holdByAll(t, "/lock/greedy")
	token := c.must(t, "POST", "/token", "").Token
	filled["{token}"] = token
	c.complete(t, "/token/"+token, c.must(t, "POST", "/token/"+token+"/claim", exampleOf(t, "/token/{token}/claim")))
	claimed := c.must(t, "POST", "/operation/claim", exampleOf(t, "/operation/claim"))
	filled["{operation}"] = claimed.Operation
	c.complete(t, "/operation/"+claimed.Operation, claimed)
}

// holdByAll has as many holders of a lock as there can be, with the longest owners.
func (c *caller) holdByAll(t *testing.T, lock string) {
	t.Helper()
	body := `{"ttl_ms":3600000,"permits":1000000,"owner":"` + strings.Repeat("a", 200) + `"}`
	for n := 0; ; n++ {
		switch status, err := c.ask(t.Context(), "POST", lock, body, nil); {
		case err == nil && status == http.StatusConflict:
			t.Logf("%s has %d holders", lock, n)
			return
		case err != nil || status != http.StatusCreated || n > 4000:
			t.Errorf("POST %s, while %d hold it: got %d %v, want that it is full", lock, n, status, err)
			return
		}
	}
}

// given is what answers give of which further requests need something.
type given struct {
	Token, Operation, Lease string
	Locks                   []struct{ Name string }
}

func (c *caller) must(t *testing.T, method, target, body string, header ...string) (got given) {
	t.Helper()
	status, err := c.ask(t.Context(), method, target, body, &got, header...)
	if err != nil || status/100 != 2 {
		t.Errorf("%s %.30s: %d %.200v", method, target, status, err)
	}
	return got
}

// complete records an answer as large as one can be.
func (c *caller) complete(t *testing.T, target string, claimed given) {
	t.Helper()
	body := base64.StdEncoding.EncodeToString(make([]byte, 700<<10))
	c.must(t, "POST", target+"/complete", `{"status":200,"body_base64":"`+body+`"}`, "Lease-Token", claimed.Lease)
}

func exampleOf(t *testing.T, path string) string {
	t.Helper()
	text, err := json.Marshal(apitest.Published().Document.Paths.Value(path).Post.RequestBody.Value.Content["application/json"].Example)
	expect.NoError(t, "the example of "+path, err)
	return string(text)
}

// greedily asks for the same, many times at once, and counts the answers by their status. It writes
// its requests as bytes, so that little of the machine is its own. With -short it ends when as many
// answers have come as there are callers.
func (c *caller) greedily(ctx context.Context, one asked, enough func()) *[600]atomic.Int64 {
	statuses, answers := &[600]atomic.Int64{}, atomic.Int64{}
	var at sync.WaitGroup
	for i := range greedyAtOnce {
		at.Go(func() {
			w := &wire{caller: c, asked: one, body: one.bodies[i%2]}
			defer w.hangUp()
			for n := 0; ctx.Err() == nil; n++ {
				status := w.ask(ctx, fmt.Sprint(i, "-", n))
				if status > 0 || ctx.Err() == nil {
					statuses[status].Add(1)
				}
				if status > 0 && answers.Add(1) == greedyAtOnce && testing.Short() {
					enough()
				}
			}
		})
	}
	at.Wait()
	return statuses
}

// wire is a connection on which one operation is asked for again and again.
type wire struct {
	*caller
	asked
	body []byte
	conn net.Conn
	from *bufio.Reader
	stop func() bool // the wait for the context's end
}

// ask returns the status, 0 for none.
func (w *wire) ask(ctx context.Context, key string) int {
	if w.conn == nil {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.to, "http://"))
		if err != nil {
			return 0
		}
		w.conn, w.from = conn, bufio.NewReaderSize(conn, 32<<10)
		w.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept-Encoding: gzip\r\nLease-Token: %s\r\n"+
		"Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n", w.method, w.target, w.key, strings.Repeat("A", 22), key, len(w.body))
	said := net.Buffers{[]byte(head), w.body}
	_, unsent := said.WriteTo(w.conn) // one that is refused is answered all the same
	answer, err := http.ReadResponse(w.from, &http.Request{Method: w.method})
	if err != nil {
		w.hangUp()
		return 0
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err != nil || unsent != nil || answer.Close {
		w.hangUp()
	}
	return answer.StatusCode
}

func (w *wire) hangUp() {
	if w.conn != nil {
		w.stop()
		_ = w.conn.Close()
		w.conn = nil
	}
}

// dieBeyond kills the process when it has so much memory that the machine would suffer.
func (a *target) dieBeyond(ctx context.Context, most int) {
	for ctx.Err() == nil {
		if a.memory() > most {
			_ = syscall.Kill(a.pid, syscall.SIGKILL)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// honest is what the other caller came to.
type honest struct {
	*caller
	served, again int
	slowest       time.Duration
}

var honestly = []asked{
	{method: "POST", target: "/incr/honest"}, {method: "GET", target: "/counter/honest"}, {method: "GET", target: "/counter?n=10"},
	{method: "GET", target: "/metrics"}, {method: "GET", target: "/readyz"},
}

// asks asks for one thing after the other until the context ends, beginning with the n-th.
func (h *honest) asks(ctx context.Context, t *testing.T, n int, beside string) {
	for ; h.served == 0 || ctx.Err() == nil; n++ {
		if !h.isServed(t, honestly[n%len(honestly)], beside) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// isServed asks as clients do: again if the connection was closed for a new one, or if Redis was
// too slow, which a busy machine can be. A refusal for what others take is a fault at once.
func (h *honest) isServed(t *testing.T, one asked, beside string) bool {
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), honestTime)
	defer cancel()
	for {
		var problem struct{ Code, Detail string }
		status, err := h.ask(ctx, one.method, one.target, "", &problem)
		switch {
		case err == nil && status == http.StatusOK:
			h.served++
			h.slowest = max(h.slowest, time.Since(began))
			return true
		case ctx.Err() == nil && (err != nil || status == http.StatusServiceUnavailable && problem.Code != "overloaded"):
			h.again++
			continue
		}
		t.Errorf("beside %s, %s %s of another caller: %d %v %v after %v", beside, one.method, one.target, status, problem, err, time.Since(began))
		return false
	}
}

// suffered is what an operation did to the service and to the other caller.
type suffered struct {
	operation string
	peak      int // MiB
	slowest   time.Duration
	text      string
}

// suffers has the greedy caller ask for the n-th operation, beside the honest one.
func (a *target) suffers(t *testing.T, n int, one asked, long time.Duration, greedy, other *caller) suffered {
	t.Helper()
	a.forgetPeak()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	h := &honest{caller: other}
	var beside sync.WaitGroup
	beside.Go(func() { h.asks(ctx, t, n, one.operation) })
	statuses := greedy.greedily(ctx, one, cancel)
	beside.Wait()
	s := suffered{operation: one.operation, peak: a.peak(), slowest: h.slowest}
	s.text = fmt.Sprintf("%-40s peak %3d MiB; the other: %4d served, the slowest after %5d ms, %d asked again; answers:", one.operation, s.peak, h.served,
		s.slowest.Milliseconds(), h.again)
	for status := range statuses {
		if n := statuses[status].Load(); n > 0 {
			s.text += fmt.Sprintf(" %d×%d", n, status)
		}
	}
	return s
}

// One caller asks each operation of the document at its largest bounds, 256 times at once. Another
// is served all the while, and the process stays within the memory of the chart's pod. With -short
// every fifth operation is asked, from a random one on.
func TestOneCallerDoesNotTakeTheServiceFromOthers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	keys := [2]access.Key{access.NewKey(), access.NewKey()}
	records := fmt.Sprintf("%s:admin:greedy::%s,%s:use:honest::%s", keys[0].ID, keys[0].Hash(), keys[1].ID, keys[1].Hash())
	service := startTarget(t, buildProgram(t), "serve", "--redis", redis.URL(), "--leaf", "segment,snowflake", "--new-pools", "trust",
		"--access-keys", records)
	greedy, other := newCaller(service, keys[0], time.Minute), newCaller(service, keys[1], honestTime)
	watched, unwatch := context.WithCancel(t.Context())
	defer unwatch()
	go service.dieBeyond(watched, 4*podMemory)
	greedy.fill(t)
	other.must(t, "POST", "/incr/honest", "")
	expect.Eventually(t, "the locks are listed", func() bool { return len(greedy.must(t, "GET", "/lock?n=1000", "").Locks) == namesOfAKind })
	long := 10 * time.Second
	if testing.Short() {
		long = 2 * time.Second // at most
	}
	var all []suffered
	first, step := 0, 1
	if testing.Short() {
		first, step = rand.N(5), 5
	}
	operations := operationsAtTheirBounds(t)
	for i := first; i < len(operations); i += step {
		one := operations[i]
		t.Run(one.operation, func(t *testing.T) {
			found := service.suffers(t, i, one, long, greedy, other)
			t.Log(found.text)
			if found.peak > podMemory {
				t.Errorf("%s: at its peak the process has %d MiB, want %d at most", one.operation, found.peak, podMemory)
			}
			all = append(all, found)
		})
	}
	most := slices.MaxFunc(all, func(a, b suffered) int { return cmp.Compare(a.peak, b.peak) })
	slowest := slices.MaxFunc(all, func(a, b suffered) int { return cmp.Compare(a.slowest, b.slowest) })
	t.Logf("of %d operations the most memory:\n%s\nand the slowest for the other:\n%s", len(all), most.text, slowest.text)
}
