package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/noupgrade"
)

func (p *program) examineService(ctx context.Context, e *examination) error {
	at, err := url.Parse(e.server)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return configError(errors.New("server: the service's URL is http://host:port or https://host"))
	}
	secure, err := e.secure()
	if err != nil {
		return configError(err)
	}
	look := newLook(strings.TrimSuffix(at.String(), "/"), e.apiKey, secure)
	defer look.web.CloseIdleConnections()
	live := p.live()
	facts, err := look.all(ctx, live)
	live.clear()
	if err != nil {
		return laterError{fmt.Errorf("no server could be asked: %w", err)}
	}
	facts.Loopback = config.IsLoopback(at.Hostname())
	return p.tell(e, examined{At: at.Redacted(), Kind: "service", Findings: doctor.ExamineService(facts, e.settings())})
}

type look struct {
	base  string
	key   string
	web   *http.Client
	way   *http.Transport // of web
	facts doctor.Service
}

func newLook(base, key string, secure *tls.Config) *look {
	way := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment}
	return &look{
		base: base, key: key, way: way,
		web: &http.Client{
			Timeout:       5 * time.Second,
			Transport:     noupgrade.Transport{Next: way},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		facts: doctor.Service{Now: time.Now(), Ours: version().Version},
	}
}

type seen struct {
	status int
	header http.Header
	body   []byte
	tls    *tls.ConnectionState
}

func (l *look) get(ctx context.Context, path string, withKey bool) (seen, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.base+path, nil)
	if err != nil {
		return seen{}, err
	}
	if withKey {
		request.Header.Set("Authorization", "Bearer "+l.key)
	}
	response, err := l.web.Do(request)
	if err != nil {
		return seen{}, err
	}
	defer func() { _ = response.Body.Close() }() // read as far as it is wanted
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	return seen{response.StatusCode, response.Header, body, response.TLS}, err
}

// all gathers the facts. It fails if the service does not answer.
func (l *look) all(ctx context.Context, live liveLine) (doctor.Service, error) {
	live.show("asking " + l.base + " whether it is ready")
	first, err := l.first(ctx)
	if err != nil {
		return l.facts, err
	}
	if l.key != "" { // who may read hears of the pools
		if known, err := l.get(ctx, "/readyz", true); err == nil {
			first = known
		}
	}
	l.readiness(first)
	l.layouts(ctx)
	live.show("measuring its latency and its clock")
	l.times(ctx)
	live.show("looking at what it tells whom")
	l.rights(ctx)
	if page, err := l.get(ctx, "/problems/"+string(api.NotFound), false); err == nil {
		l.facts.Problems = page.status
	}
	return l.facts, ctx.Err()
}

// first asks for /readyz. With an untrusted certificate it goes on, but does not show the key.
func (l *look) first(ctx context.Context) (seen, error) {
	answer, err := l.get(ctx, "/readyz", false)
	untrusted := ""
	if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		untrusted, l.key = wrong.Err.Error(), ""
		// to look at the certificate; nothing secret is sent
		l.way.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: l.way.TLSClientConfig.Certificates,
			InsecureSkipVerify: true} //nolint:gosec // as above
		answer, err = l.get(ctx, "/readyz", false)
	}
	if err == nil && answer.tls != nil && len(answer.tls.PeerCertificates) > 0 {
		l.facts.Certificate = &doctor.Certificate{NotAfter: answer.tls.PeerCertificates[0].NotAfter, Untrusted: untrusted}
	}
	return answer, err
}

func (l *look) readiness(answer seen) {
	l.facts.ReadyStatus = answer.status
	var ready api.Readiness
	if json.Unmarshal(answer.body, &ready) != nil || ready.Store == "" {
		return // it is not coatcheck that answers
	}
	l.facts.Ready, l.facts.Reason, l.facts.Store, l.facts.Ack = ready.Ready && answer.status == http.StatusOK, ready.Reason, ready.Store,
		ready.Ack
	for _, worker := range ready.Workers {
		if worker.State != "held" {
			l.facts.Waiting = append(l.facts.Waiting, fmt.Sprintf("%s (%s)", worker.Pool, worker.Reason))
		}
	}
	if n := ready.WorkerIDs; n != nil && n.Waiting > 0 && len(ready.Workers) == 0 {
		l.facts.Waiting = []string{fmt.Sprintf("%d pools (which, hears a key of role read)", n.Waiting)}
	}
}

// layouts finds the pool whose layout ends first, on the first page of them, if it may be read.
func (l *look) layouts(ctx context.Context) {
	page, err := l.get(ctx, "/worker?n=1000", l.key != "")
	var list api.WorkerPools
	if err != nil || page.status != http.StatusOK || json.Unmarshal(page.body, &list) != nil {
		return
	}
	for _, pool := range list.Pools {
		if !pool.EndsAt.IsZero() && (l.facts.EndsFirst == "" || pool.EndsAt.Before(l.facts.EndsAt)) {
			l.facts.EndsFirst, l.facts.EndsAt = pool.Pool, pool.EndsAt.Time
		}
	}
}

const (
	looks = 20
	// spread over a second, so that the whole seconds of the Date header tell more.
	lookEvery = 53 * time.Millisecond
)

// times measures the latency, and the clock by the Date header: it is cut to whole seconds, so each
// answer says only that the service's clock is within a second, and several answers at different
// moments of the second say more together.
func (l *look) times(ctx context.Context) {
	var took []time.Duration
	least, most := time.Duration(-1<<62), time.Duration(1<<62)
	for range looks {
		before := time.Now()
		answer, err := l.get(ctx, "/livez", false)
		after := time.Now()
		if err != nil {
			break
		}
		took = append(took, after.Sub(before))
		if date, err := http.ParseTime(answer.header.Get("Date")); err == nil {
			least = max(least, date.Sub(after.Round(0)))
			most = min(most, date.Add(time.Second).Sub(before.Round(0)))
		}
		pause(ctx, lookEvery-after.Sub(before))
	}
	if l.facts.Clock = (doctor.Clock{Offset: (least + most) / 2, Within: (most - least) / 2}); most-least < 0 || most == 1<<62 {
		l.facts.Clock = doctor.Clock{Err: "its answers have no Date that one can use"}
	}
	if slices.Sort(took); len(took) > 0 {
		l.facts.Latency = doctor.Latency{N: len(took), P50: took[len(took)/2], P99: took[len(took)-1], Max: took[len(took)-1]}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

var buildInfo = lazyregexp.New(`(?m)^coatcheck_build_info\{[^}]*\bversion="([^"]*)"`)

// rights finds out which callers may read, and the version, if this one may.
func (l *look) rights(ctx context.Context) {
	if answer, err := l.get(ctx, "/counter?n=1", false); err == nil {
		l.facts.Anonymous = answer.status
	}
	if l.key != "" {
		if answer, err := l.get(ctx, "/counter?n=1", true); err == nil {
			l.facts.WithKey = answer.status
		}
	}
	if answer, err := l.get(ctx, "/metrics", l.key != ""); err == nil && answer.status == http.StatusOK {
		if match := buildInfo().FindSubmatch(answer.body); match != nil {
			l.facts.Version = string(match[1])
		}
	}
}
