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

// did notes what a caller has done, for the events and, if it is audited, in the log.
func (s *Server) did(c echo.Context, event wire.Event) {
	event.EventBy = s.by(c, "")
	s.auditDone(c, event)
	s.events.Add(event)
}

// didCounted is did for what is only counted.
func (s *Server) didCounted(c echo.Context, kind string) {
	s.auditDone(c, wire.Event{Kind: kind, EventBy: s.by(c, "")})
	s.events.Count(kind)
}

func (s *Server) auditDone(c echo.Context, event wire.Event) {
	if audited[event.Kind] {
		s.audit.Done(c.Request().Context(), audit.Entry{Action: event.Kind, Name: cmp.Or(event.Name, event.Operation), By: event.EventBy})
	}
}

// by is who sends a request, and how it ended.
func (s *Server) by(c echo.Context, code wire.Code) wire.EventBy {
	request, who := c.Request(), caller(c)
	found := wire.EventBy{Principal: who.Principal, KeyID: who.KeyID, Address: c.RealIP(), Route: requestlog.Method(request.Method) + " " + braces(c.Path()), Code: string(code)}
	if found.KeyID == "" {
		found.KeyID = shownKeyID(s.config.Access, request.Header)
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

// refusals has a line for each refused caller, and for what an admin asked for and did not get.
func (s *Server) refusals(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err != nil {
			s.noteRefusal(c, err)
		}
		return err
	}
}

// noteRefusal writes, once a request, that it was refused. What is wrong with a request is not
// noted, unless it is one of an admin.
func (s *Server) noteRefusal(c echo.Context, err error) {
	code := problemOf(err).Code
	refused := code == wire.Unauthorized || code == wire.Forbidden || code == wire.TooManyRequests
	if !refused && !s.isAdminAct(c) || c.Get(notedKey) != nil {
		return
	}
	c.Set(notedKey, true)
	event := wire.Event{Kind: events.RequestRefused, EventBy: s.by(c, code)}
	if code != wire.Unauthorized { // what a stranger chose is not for the log
		event.Name = nameIn(c)
	}
	entry := audit.Entry{Action: event.Kind, Name: event.Name, By: event.EventBy}
	if code == wire.OutcomeUnknown { // it may have been done
		entry.Action = string(code)
		s.audit.Done(c.Request().Context(), entry)
		s.events.Add(event)
		return
	}
	if s.audit.Refused(c.Request().Context(), entry) {
		s.events.Add(event)
	} else {
		s.events.Count(event.Kind)
	}
}

// isAdminAct reports whether a request asks for what takes role admin.
func (s *Server) isAdminAct(c echo.Context) bool {
	return s.roles[c.Request().Method+" "+c.Path()] == access.Admin || c.Path() == "/lock/:name" && has(c, "force")
}

// nameIn is the name in a request's path; "" if it has none that is one.
func nameIn(c echo.Context) string {
	for _, param := range []string{"key", "pool", "tag", "name"} {
		if !strings.Contains(c.Path()+"/", "/:"+param+"/") {
			continue
		}
		if escaped, err := segmentOf(c, param); err == nil {
			if text, err := url.PathUnescape(escaped); err == nil && names.Valid(text) {
				return text
			}
		}
	}
	return ""
}
