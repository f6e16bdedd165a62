package server

import (
	"cmp"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// audited are the events that have a line each in the log. Frequent ones have none, such as values,
// grants and releases: the access log has those requests.
var audited = map[string]bool{
	events.StoreRestored: true, events.ReplicasGone: true, events.CounterSet: true, events.CounterRemoved: true,
	events.LimitReset: true, events.LimitReturned: true, events.SegmentSet: true,
	events.PoolCreated: true, events.WorkerGranted: true, events.WorkerReleased: true,
	events.LockBroken: true, events.OperationReleased: true, events.OperationSettled: true, events.OperationForgotten: true,
}

// journal records the acts and the refusals of callers, for the events and the log.
type journal struct {
	events *events.Log
	audit  *audit.Log
	access *access.Policy      // nil = it is not controlled
	routes map[string]endpoint // by method and Echo's path
}

// did records an act of a caller, for the events and, if it is audited, in the log.
func (j *journal) did(c echo.Context, event api.Event) {
	event.EventBy = j.by(c, "")
	j.auditDone(c, event)
	j.events.Add(event)
}

// didCounted is did for acts that are only counted.
func (j *journal) didCounted(c echo.Context, kind string) {
	j.auditDone(c, api.Event{Kind: kind, EventBy: j.by(c, "")})
	j.events.Count(kind)
}

func (j *journal) auditDone(c echo.Context, event api.Event) {
	if audited[event.Kind] {
		name := cmp.Or(event.Name, event.Operation, event.Reason)
		j.audit.Done(c.Request().Context(), audit.Entry{Action: event.Kind, Name: name, By: event.EventBy})
	}
}

// by returns the caller of a request, and how the request ended.
func (j *journal) by(c echo.Context, code api.Code) api.EventBy {
	request, who := c.Request(), caller(c)
	found := api.EventBy{
		Principal: who.Principal, KeyID: who.KeyID, Address: c.RealIP(),
		Route: requestlog.Method(request.Method) + " " + braces(c.Path()), Code: string(code),
	}
	if found.KeyID == "" {
		found.KeyID = shownKeyID(j.access, request.Header)
	}
	if request.TLS != nil && len(request.TLS.VerifiedChains) > 0 {
		found.Certificate = certificateName(request.TLS.PeerCertificates[0])
	}
	return found
}

// shownKeyID is the id of a known key that was shown with a wrong secret. An unknown id is a
// stranger's choice, and not logged.
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

// certificateName is a certificate's first DNS name, else its first URI, else its common name.
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

// refusals records why a request was refused: a line for each refused caller and each refused act
// of an admin, and an event for refusals that concern more than one client.
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

// refused logs, once a request, that it was refused. A malformed request is not logged, unless it
// asks for an act of an admin.
func (j *journal) refused(c echo.Context, err error) {
	code := problemOf(err).Code
	isRefusal := code == api.Unauthorized || code == api.Forbidden || code == api.TooManyRequests
	if !isRefusal && !j.isAdminAct(c) || c.Get(notedKey) != nil {
		return
	}
	c.Set(notedKey, true)
	event := api.Event{Kind: events.RequestRefused, EventBy: j.by(c, code)}
	if code != api.Unauthorized { // what a stranger chose is not for the log
		event.Name = nameIn(c)
	}
	entry := audit.Entry{Action: event.Kind, Name: event.Name, By: event.EventBy}
	if code == api.OutcomeUnknown { // it may have been done
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

// adminActKey marks a request that a part of it makes one for role admin: see request.mustBe.
const adminActKey = "coatcheck.adminAct"

// isAdminAct reports whether a request needs role admin.
func (j *journal) isAdminAct(c echo.Context) bool {
	return j.routes[c.Request().Method+" "+c.Path()].Role == access.Admin || c.Get(adminActKey) != nil
}

// nameIn is the name in a request's path; "" if there is no valid one.
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
