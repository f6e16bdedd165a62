//go:build check && linux

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load is everything that goes on at once.
type load struct {
	*rig

	ctx    context.Context
	client *http.Client // of those that work
	all    sync.WaitGroup
	counts map[string]*atomic.Int64 // by what was done
	wrong  chan error               // what those that work were told, and should not have been
	next   atomic.Int64
	broken *broken // what is broken meanwhile; nil = nothing
}

// part is one kind of client: how many there are of it, how long each waits between two turns, and
// a turn.
type part struct {
	name  string
	many  int
	pause time.Duration
	turn  func(l *load)
}

// bad are clients that misbehave.
var bad = []part{
	{"unused connection, kept for a while", 300, 0, (*load).idle},
	{"connection without a word", 50, 0, (*load).silent},
	{"header letter by letter", 10, 0, (*load).slowHeader},
	{"body letter by letter", 10, 0, (*load).slowBody},
	{"body that never ends", 2, 50 * time.Millisecond, (*load).endlessBody},
	{"flood of headers", 2, 50 * time.Millisecond, (*load).headerFlood},
	{"no HTTP", 2, 20 * time.Millisecond, (*load).garbage},
	{"unknown path", 2, 10 * time.Millisecond, func(l *load) { l.ask("GET", "/"+word(20)+"/"+word(3000), "") }},
	{"name that cannot be one", 2, 10 * time.Millisecond, func(l *load) { l.ask("POST", "/incr/"+word(10)+"%0d%0a%00"+word(300), "") }},
	{"method that there is not", 1, 20 * time.Millisecond, func(l *load) { l.ask(strings.ToUpper(word(6)), "/incr/x", "") }},
	{"wrong key", 2, 10 * time.Millisecond, func(l *load) { l.ask("POST", "/incr/x", "", "Authorization: Bearer cck_"+lower(8)+"_"+word(43)) }},
	{"body that is no JSON", 2, 10 * time.Millisecond, func(l *load) { l.ask("POST", "/token", strings.Repeat("[", rand.IntN(50_000))) }},
	{"compressed body", 1, 10 * time.Millisecond, func(l *load) { l.ask("POST", "/token", word(5000), "Content-Encoding: gzip") }},
	{"hang-up before the answer", 5, 10 * time.Millisecond, (*load).hangUp},
	{"wait for a lock, hung up", 10, 10 * time.Millisecond, (*load).abandonWait},
	{"listener that comes and goes", 10, 20 * time.Millisecond, (*load).listen},
	{"listener that takes nothing", 4, 0, (*load).deaf},
	{"unused token", 2, 10 * time.Millisecond, func(l *load) { l.ask("POST", "/token", `{"ttl_ms":2000}`) }},
	{"claim that is left alone", 2, 20 * time.Millisecond, (*load).abandonClaim},
	{"counter of a name of its own", 2, 10 * time.Millisecond, func(l *load) { l.ask("POST", "/incr/random:"+word(20), "") }},
	{"lock of a name of its own, left alone", 2, 10 * time.Millisecond, func(l *load) { l.ask("POST", "/lock/random:"+word(20), `{"ttl_ms":1000}`) }},
	{"pool of a name of its own", 1, 100 * time.Millisecond, func(l *load) { l.ask("POST", "/worker/random:"+word(20), `{"ttl_ms":1000}`) }},
	{"ids of a tag of its own", 1, 50 * time.Millisecond, func(l *load) { l.ask("GET", "/id/segment/random:"+word(20), "") }},
	{"ids of a pool of its own", 1, 100 * time.Millisecond, func(l *load) { l.ask("GET", "/id/snowflake/random:"+word(20), "") }},
	{"gateway: guarded without a key", 2, 10 * time.Millisecond, func(l *load) { l.through("POST", "/payments", "{}") }},
	{"gateway: body that does not come", 10, 0, (*load).missingBody},
	{"gateway: answer that is not read", 4, 0, (*load).untaken},
	{"gateway: unknown path", 2, 10 * time.Millisecond, func(l *load) { l.through("GET", "/"+word(2000), "") }},
	{"gateway: unused connection, kept for a while", 100, 0, func(l *load) { l.keep(l.gateway, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") }},
}

const paying = "paid by the gateway, and asked twice"

// good are clients that work: each answer is looked at.
var good = []part{
	{"counted", 4, 5 * time.Millisecond, (*load).count},
	{paying, 4, 10 * time.Millisecond, (*load).pay},
	{"ids", 2, 5 * time.Millisecond, (*load).stamp},
	{"lock held and released", 2, 10 * time.Millisecond, (*load).lock},
}

// begin starts all clients. They end with the context.
func begin(ctx context.Context, r *rig) *load {
	return beginParts(ctx, r, nil, append(append([]part(nil), bad...), good...))
}

func beginParts(ctx context.Context, r *rig, broken *broken, parts []part) *load {
	l := &load{
		rig: r, broken: broken, ctx: ctx, counts: map[string]*atomic.Int64{}, wrong: make(chan error, 100),
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	for _, p := range parts {
		done := &atomic.Int64{}
		l.counts[p.name] = done
		for range p.many {
			l.all.Go(func() {
				for ctx.Err() == nil {
					p.turn(l)
					done.Add(1)
					l.wait(p.pause)
				}
			})
		}
	}
	return l
}

// end waits until all clients have ended, which their context says to them.
func (l *load) end() {
	l.all.Wait()
	l.client.CloseIdleConnections()
}

func (l *load) wait(d time.Duration) {
	if l.broken != nil {
		d = time.Duration(float64(d) * l.broken.slower())
	}
	select {
	case <-l.ctx.Done():
	case <-time.After(d):
	}
}

// faultf notes that a client that works was answered wrongly.
func (l *load) faultf(format string, args ...any) {
	if l.ctx.Err() != nil {
		return // it was cut off by the end
	}
	select {
	case l.wrong <- fmt.Errorf(format, args...):
	default:
	}
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func word(n int) string { return lot(letters, n) }

func lower(n int) string { return lot(letters[:26], n) }

func lot(from string, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = from[rand.IntN(len(from))]
	}
	return string(text)
}

// ask sends a request on a connection of its own, and takes whatever comes.
func (l *load) ask(method, path, body string, header ...string) {
	l.send(l.service, method, path, body, header...)
}

func (l *load) through(method, path, body string, header ...string) {
	l.send(l.gateway, method, path, body, header...)
}

func (l *load) send(p *process, method, path, body string, header ...string) {
	if len(header) == 0 || !strings.HasPrefix(header[0], "Authorization") {
		header = append(header, "Authorization: Bearer "+l.key)
	}
	l.say(p, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n\r\n%s", method, path, len(body), strings.Join(header, "\r\n"), body), true)
}

// dial connects; nil if that fails, as it may when connections come and go so fast.
func (l *load) dial(p *process) net.Conn {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(l.ctx, "tcp", p.addr)
	if err != nil {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
	return conn
}

// say writes, and reads to the end if it is to.
func (l *load) say(p *process, text string, read bool) {
	conn := l.dial(p)
	if conn == nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(l.ctx, func() { conn.Close() })()
	_, _ = io.WriteString(conn, text) // it may be refused before its end
	if read {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// keep says something, and then stays connected for a second or so.
func (l *load) keep(p *process, text string) {
	conn := l.dial(p)
	if conn == nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, text)
	l.wait(time.Second + rand.N(time.Second))
}

func (l *load) idle() { l.keep(l.service, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") }

func (l *load) silent() { l.keep(l.service, "") }

// drip says a beginning and then one piece after another, for as long as it may and two seconds at
// most.
func (l *load) drip(p *process, beginning, piece string, pause time.Duration) {
	conn := l.dial(p)
	if conn == nil {
		return
	}
	defer conn.Close()
	text := beginning
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until) && l.ctx.Err() == nil; text = piece {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
		l.wait(pause)
	}
}

func (l *load) slowHeader() {
	l.drip(l.service, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "a", 50*time.Millisecond)
}

func (l *load) slowBody() {
	l.drip(l.service, "POST /token HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+l.key+"\r\nContent-Length: 1000\r\n\r\n{", " ", 50*time.Millisecond)
}

var spaces = strings.Repeat(" ", 64<<10)

func (l *load) endlessBody() {
	l.drip(l.service, "POST /token HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+l.key+"\r\nTransfer-Encoding: chunked\r\n\r\n", "10000\r\n"+spaces+"\r\n", 0)
}

func (l *load) headerFlood() {
	l.say(l.service, "GET /livez HTTP/1.1\r\nHost: localhost\r\n"+strings.Repeat("X-"+word(8)+": "+word(8)+"\r\n", 1+rand.IntN(5000))+"\r\n", true)
}

func (l *load) garbage() {
	text := make([]byte, 1+rand.IntN(2000))
	for i := range text {
		text[i] = byte(rand.IntN(256))
	}
	l.say(l.service, string(text)+"\r\n\r\n", true)
}

func (l *load) hangUp() {
	l.say(l.service, "POST /incr/hung HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+l.key+"\r\nContent-Length: 0\r\n\r\n", false)
}

func (l *load) abandonWait() {
	conn := l.dial(l.service)
	if conn == nil {
		return
	}
	defer conn.Close()
	body := `{"ttl_ms":500,"wait_ms":10000}`
	_, _ = fmt.Fprintf(conn, "POST /lock/contended HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", l.key, len(body), body)
	l.wait(rand.N(200 * time.Millisecond))
}

func (l *load) listen() {
	conn := l.dial(l.service)
	if conn == nil {
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", l.key)
	_ = conn.SetReadDeadline(time.Now().Add(rand.N(time.Second)))
	_, _ = io.Copy(io.Discard, conn)
}

func (l *load) deaf() {
	l.keep(l.service, "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+l.key+"\r\n\r\n")
}

func (l *load) abandonClaim() {
	status, text, err := l.do(l.client, l.service, "POST", "/token", "{}")
	var issued struct {
		Token string `json:"token"`
	}
	if err != nil || status != http.StatusCreated || json.Unmarshal([]byte(text), &issued) != nil {
		return
	}
	l.ask("POST", "/token/"+issued.Token+"/claim", `{"fingerprint":"f","lease_ms":1000}`)
}

func (l *load) missingBody() {
	l.keep(l.gateway, "POST /payments HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: "+word(20)+"\r\nContent-Length: 100\r\n\r\n{")
}

func (l *load) untaken() {
	l.keep(l.gateway, strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n", 50))
}

// count adds to a counter, and looks whether its value is new.
func (l *load) count() {
	status, text, err := l.do(l.client, l.service, "POST", "/incr/orders", "")
	var got struct {
		Value int64 `json:"value"`
	}
	if l.excused(status, err) {
		return
	}
	if err = errors.Join(err, json.Unmarshal([]byte(text), &got)); err != nil || status != http.StatusOK || got.Value < 1 {
		l.faultf("incr: %d %.200s %v", status, text, err)
	}
	l.broken.tell(got.Value)
}

// pay pays by the gateway twice with one key, which has to be answered alike.
func (l *load) pay() {
	header := "Idempotency-Key: soak-" + fmt.Sprint(l.next.Add(1))
	const payment = `{"amount":1,"currency":"EUR","to":"acct_1"}`
	var first string
	for i := range 2 {
		status, text, err := l.do(l.client, l.gateway, "POST", "/payments", payment, header)
		if l.excused(status, err) {
			return
		}
		if err != nil || status != http.StatusCreated || i == 1 && text != first {
			l.faultf("payment %d: %d %.200s %v", i, status, text, err)
			return
		}
		first = text
	}
}

func (l *load) stamp() {
	status, text, err := l.do(l.client, l.service, "GET", "/id/segment/orders?n=10", "", "Accept: text/plain")
	if l.excused(status, err) {
		return
	}
	if err != nil || status != http.StatusOK || strings.Count(text, "\n") != 10 {
		l.faultf("ids: %d %.200s %v", status, text, err)
	}
}

func (l *load) lock() {
	name := "/lock/own:" + fmt.Sprint(l.next.Add(1)%50)
	status, text, err := l.do(l.client, l.service, "POST", name, `{"ttl_ms":30000,"wait_ms":20000}`)
	if l.excused(status, err) {
		return
	}
	var grant struct {
		Lease string `json:"lease"`
	}
	if err = errors.Join(err, json.Unmarshal([]byte(text), &grant)); err != nil || status != http.StatusCreated {
		l.faultf("lock: %d %.200s %v", status, text, err)
		return
	}
	if status, text, err = l.do(l.client, l.service, "DELETE", name, "", "Lease-Token: "+grant.Lease); l.excused(status, err) {
		return
	}
	if err != nil || status != http.StatusNoContent {
		l.faultf("release: %d %.200s %v", status, text, err)
	}
}
