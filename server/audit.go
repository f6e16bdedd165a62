package server

import (
	"cmp"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// audited are the events that have a line in the log each. What hands out values, and what is given
// back and taken by the thousand, has none of its own: the access log has those requests.
var audited = map[string]bool{
	events.CounterSet: true, events.CounterRemoved: true, events.SegmentSet: true, events.PoolCreated: true, events.WorkerGranted: true, events.WorkerReleased: true, events.LockBroken: true, events.TokenReleased: true, events.OperationSettled: true,
}

// journal notes what callers have done and what they were refused, for the events and the log.
type journal struct {
	events *events.Log
	audit  *audit.Log
	access *access.Policy   // nil = it is not controlled
	routes map[string]Route // by method and Echo's path
}

// did notes what a caller has done, for the events and, if it is audited, in the log.
func (j *journal) did(c echo.Context, event wire.Event) {
	event.EventBy = j.by(c, "")
	j.auditDone(c, event)
	j.events.Add(event)
}

// didCounted is did for what is only counted.
func (j *journal) didCounted(c echo.Context, kind string) {
	j.auditDone(c, wire.Event{Kind: kind, EventBy: j.by(c, "")})
	j.events.Count(kind)
}

func (j *journal) auditDone(c echo.Context, event wire.Event) {
	if audited[event.Kind] {
		j.audit.Done(c.Request().Context(), audit.Entry{Action: event.Kind, Name: cmp.Or(event.Name, event.Operation), By: event.EventBy})
	}
}

// by is who sends a request, and how it ended.
func (j *journal) by(c echo.Context, code wire.Code) wire.EventBy {
	request, who := c.Request(), caller(c)
	found := wire.EventBy{Principal: who.Principal, KeyID: who.KeyID, Address: c.RealIP(), Route: requestlog.Method(request.Method) + " " + braces(c.Path()), Code: string(code)}
	if found.KeyID == "" {
		found.KeyID = shownKeyID(j.access, request.Header)
	}
	if request.TLS != nil && len(request.TLS.VerifiedChains) > 0 {
		found.Certificate = certificateName(request.TLS.PeerCertificates[0])
	}
	return found
}

// shownKeyID is the id of a key that was shown with another secret. An unknown one is what a
// stranger chose, and not for the log.
func shownKeyID(book *access.Policy, header http.Header) string {
	if book == nil {
		return ""
	}
	text, err := keyOf(header)
	if err != nil {
		return ""
	}
	shown, err := access.ParseKey(text)
	if err != nil || !book.Has(shown.ID) {
		return ""
	}
	return shown.ID
}

const longestCertificateName = 200

// certificateName is a name of a certificate: of those that access control knows the one that is
// most likely its own.
func certificateName(of *x509.Certificate) string {
	name := of.Subject.CommonName
	switch {
	case len(of.DNSNames) > 0:
		name = of.DNSNames[0]
	case len(of.URIs) > 0:
		name = (&url.URL{Scheme: of.URIs[0].Scheme, Host: of.URIs[0].Host, Path: of.URIs[0].Path}).String()
	}
	return name[:min(len(name), longestCertificateName)]
}

const notedKey = "coatcheck.audit"

// refusals notes what a request was refused for: a line for each refused caller, and for what an
// admin asked for and did not get; and an event for what is more than one client's business.
func (j *journal) refusals(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err != nil {
			j.addRefusal(c, err)
			j.refused(c, err)
		}
		return err
	}
}

// refused writes, once a request, that it was refused. What is wrong with a request is not
// noted, unless it is one of an admin.
func (j *journal) refused(c echo.Context, err error) {
	code := problemOf(err).Code
	isRefusal := code == wire.Unauthorized || code == wire.Forbidden || code == wire.TooManyRequests
	if !isRefusal && !j.isAdminAct(c) || c.Get(notedKey) != nil {
		return
	}
	c.Set(notedKey, true)
	event := wire.Event{Kind: events.RequestRefused, EventBy: j.by(c, code)}
	if code != wire.Unauthorized { // what a stranger chose is not for the log
		event.Name = nameIn(c)
	}
	entry := audit.Entry{Action: event.Kind, Name: event.Name, By: event.EventBy}
	if code == wire.OutcomeUnknown { // it may have been done
		entry.Action = string(code)
		j.audit.Done(c.Request().Context(), entry)
		j.events.Add(event)
		return
	}
	if j.audit.Refused(c.Request().Context(), entry) {
		j.events.Add(event)
	} else {
		j.events.Count(event.Kind)
	}
}

// isAdminAct reports whether a request asks for what takes role admin.
func (j *journal) isAdminAct(c echo.Context) bool {
	return j.routes[c.Request().Method+" "+c.Path()].Role == access.Admin || c.Path() == "/lock/:name" && has(c, "force")
}

// nameIn is the name in a request's path; "" if it has none that is one.
func nameIn(c echo.Context) string {
	for _, param := range []string{"key", "pool", "tag", "name"} {
		if !strings.Contains(c.Path()+"/", "/:"+param+"/") {
			continue
		}
		escaped := (&request{Context: c}).segment(param)
		if text, err := url.PathUnescape(escaped); err == nil && names.Valid(text) {
			return text
		}
	}
	return ""
}
