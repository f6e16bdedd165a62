package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var today = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func healthyService() Service {
	return Service{
		Now: today, Ready: true, ReadyStatus: 200, Store: "sentinel", Ack: 1, Version: "v1", Ours: "v1",
		Clock: Clock{Within: 20 * time.Millisecond}, Latency: Latency{N: 20, P50: time.Millisecond, P99: 2 * time.Millisecond},
		Anonymous: 401, WithKey: 200, Certificate: &Certificate{NotAfter: today.AddDate(1, 0, 0)}, Problems: 200,
	}
}

func TestEachCheckOfAServiceFindsItsFact(t *testing.T) {
	ill := map[string]bool{}
	for _, row := range []struct {
		id, says string
		worst    Severity
		harm     func(s *Service)
	}{
		{"service-ready", "not ready: stopping", Critical, func(s *Service) { s.Ready, s.Reason = false, "stopping" }},
		{"service-ready", "answers 404", Critical, func(s *Service) { s.Ready, s.ReadyStatus = false, 404 }},
		{"service-store", "embedded", Note, func(s *Service) { s.Store = "embedded" }},
		{"service-store", "--ack 0", Note, func(s *Service) { s.Ack = 0 }},
		{"service-workers", "default", Warning, func(s *Service) { s.Waiting = []string{"default (quarantine)"} }},
		{"service-layouts", "orders has no timestamps", Warning, func(s *Service) { s.EndsFirst, s.EndsAt = "orders", today.AddDate(0, 11, 0) }},
		{"service-layouts", "orders has no timestamps", Critical, func(s *Service) { s.EndsFirst, s.EndsAt = "orders", today.AddDate(0, 0, 29) }},
		{"service-keys", "takes every caller", Warning, func(s *Service) { s.Anonymous = 200 }},
		{"service-keys", "on this host", Note, func(s *Service) { s.Anonymous, s.Loopback = 200, true }},
		{"service-keys", "503", Note, func(s *Service) { s.Anonymous = 503 }},
		{"service-key", "401", Warning, func(s *Service) { s.WithKey = 401 }},
		{"service-tls", "no TLS", Warning, func(s *Service) { s.Certificate = nil }},
		{"service-tls", "has ended", Critical, func(s *Service) { s.Certificate.NotAfter = today.Add(-time.Hour) }},
		{"service-tls", "in 3 days", Warning, func(s *Service) { s.Certificate.NotAfter = today.Add(80 * time.Hour) }},
		{"service-tls", "not trusted", Critical, func(s *Service) { s.Certificate.Untrusted = "unknown authority" }},
		{"service-clock", "1m0s off", Warning, func(s *Service) { s.Clock.Offset = time.Minute }},
		{"service-clock", "cannot be seen", Note, func(s *Service) { s.Clock.Err = "no Date" }},
		{"service-latency", "p99 2s", Warning, func(s *Service) { s.Latency.P99 = 2 * time.Second }},
		{"service-version", "version v2", Note, func(s *Service) { s.Version = "v2" }},
		{"service-version", "cannot be seen", Note, func(s *Service) { s.Version = "" }},
		{"service-problems", "404", Warning, func(s *Service) { s.Problems = 404 }},
	} {
		facts := healthyService()
		row.harm(&facts)
		ill[row.id] = true
		found := of(row.id, ExamineService(facts, Settings{}))
		if len(found) != 1 || found[0].Severity != row.worst || !strings.Contains(found[0].Found, row.says) {
			t.Errorf("%s: got %+v, want %v: %s", row.id, found, row.worst, row.says)
		}
	}
	for _, check := range serviceChecks {
		if !ill[check.id] {
			t.Errorf("no symptom of %s", check.id)
		}
	}
	for _, f := range ExamineService(healthyService(), Settings{}) {
		if f.Severity > OK {
			t.Errorf("of a healthy service: %+v", f)
		}
	}
	// On this host there is no listener on the way.
	facts := healthyService()
	facts.Certificate, facts.Loopback = nil, true
	expect.Equal(t, "service-tls of a service on this host", of("service-tls", ExamineService(facts, Settings{})), nil)
}
